#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges arrays with numpy and jax through DLPack, both ways: the same address on both sides, freed once, by the last."""
import ctypes
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
import checks

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)
try:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None

compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
if compiler is None:
    print("skipped: no C++ compiler")
    sys.exit(77)
folder = tempfile.TemporaryDirectory()
library = os.path.join(folder.name, "dlpack.so")
subprocess.run([*compiler.split(), "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{TESTS.parent / 'include'}", str(TESTS / "peer/dlpack.cpp"),
                "-o", library], check=True)
hf = ctypes.CDLL(library)
for name in ("hf_make", "hf_export", "hf_export_versioned", "hf_import", "hf_import_versioned", "hf_address"):
    getattr(hf, name).restype = ctypes.c_void_p
for name in ("hf_destroy", "hf_export", "hf_export_versioned", "hf_address", "hf_size", "hf_externals", "hf_donates", "hf_is_mutable"):
    getattr(hf, name).argtypes = [ctypes.c_void_p]
for name in ("hf_import", "hf_import_versioned", "hf_dimension", "hf_minor"):
    getattr(hf, name).argtypes = [ctypes.c_void_p, ctypes.c_int]
hf.hf_size.restype = hf.hf_frees.restype = ctypes.c_int64

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
# A capsule keeps the address of its name, so the names must stay.
NAMES = {kind: ctypes.create_string_buffer(kind) for kind in (b"dltensor", b"used_dltensor", b"dltensor_versioned", b"used_dltensor_versioned")}


def named(kind):
    return ctypes.cast(NAMES[kind], ctypes.c_char_p)


class Ours:
    """A buffer of ours as Python sees it."""
    TYPES = {"int8": 0, "int32": 1, "float32": 2}

    def __init__(self, dtype=None, dimensions=(), handle=None):
        shape = (ctypes.c_int64 * len(dimensions))(*dimensions)
        self.handle = handle or hf.hf_make(self.TYPES[dtype], len(dimensions), shape)
        assert self.handle, "no buffer was made"

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert not copy and dl_device in (None, (1, 0))
        self.versioned = max_version is not None and max_version[0] >= 1
        pointer = (hf.hf_export_versioned if self.versioned else hf.hf_export)(self.handle)
        if not pointer:
            raise BufferError("refused")
        return api.PyCapsule_New(pointer, named(b"dltensor_versioned" if self.versioned else b"dltensor"), None)

    def __dlpack_device__(self):
        return (1, 0)

    @classmethod
    def of(cls, array, versioned, is_mutable=False):
        """Imports an array of theirs; None if we refuse it."""
        capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
        kind = b"dltensor_versioned" if api.PyCapsule_IsValid(capsule, named(b"dltensor_versioned")) else b"dltensor"
        pointer = api.PyCapsule_GetPointer(capsule, named(kind))
        api.PyCapsule_SetName(capsule, named(b"used_" + kind))
        handle = (hf.hf_import_versioned if kind.endswith(b"versioned") else hf.hf_import)(pointer, is_mutable)
        made = cls(handle=handle) if handle else None
        if made:
            made.versioned = kind.endswith(b"versioned")
        return made

    def __getattr__(self, name):
        return getattr(hf, "hf_" + name)(self.handle)

    def destroy(self):
        hf.hf_destroy(self.handle)


def address(array):
    return array.__array_interface__["data"][0] if isinstance(array, numpy.ndarray) else array.unsafe_buffer_pointer()


def ours_to(peer, dtype, dimensions, name):
    freed = hf.hf_frees()
    ours = Ours(dtype, dimensions)
    theirs = peer(ours)
    size = int(numpy.prod(dimensions))
    checks.check(f"{name}: they see our bytes", numpy.array_equal(numpy.asarray(theirs).reshape(-1), numpy.arange(size).astype(dtype)))
    checks.check(f"{name}: at our address, nothing copied", address(theirs) == ours.address, f"{address(theirs)} {ours.address}")
    checks.check(f"{name}: shape and type are ours", tuple(theirs.shape) == dimensions and str(theirs.dtype) == dtype)
    checks.check(f"{name}: their array is an external hold, which forbids a donation", ours.externals >= 1 and not ours.donates)
    ours.destroy()
    checks.check(f"{name}: our buffer is gone, their array lives on", hf.hf_frees() == freed and int(numpy.asarray(theirs).reshape(-1)[-1]) == size - 1)
    del theirs
    gc.collect()
    checks.check(f"{name}: freed once, with their array", hf.hf_frees() == freed + 1, f"{hf.hf_frees() - freed} frees")
    return ours.versioned


def theirs_to_us(array, name, versioned, keeps):
    """`keeps(array)`: what tells whether somebody else keeps the array's memory."""
    before = keeps(array)
    ours = Ours.of(array, versioned)
    if ours is None:
        return checks.fail(f"{name}: we take it")
    checks.check(f"{name}: we see their bytes at their address, nothing copied", ours.address == address(array))
    checks.check(f"{name}: size and dimensions are theirs", ours.size == array.nbytes and
                 all(hf.hf_dimension(ours.handle, d) == n for d, n in enumerate(array.shape)))
    checks.check(f"{name}: constant for us", not ours.is_mutable)
    during = keeps(array)
    again = numpy.from_dlpack(ours) if ours.versioned else None
    if again is not None:
        checks.check(f"{name}: and back to numpy at the same address, read only", address(again) == address(array) and not again.flags.writeable)
    del again
    ours.destroy()
    gc.collect()
    checks.check(f"{name}: kept while we have it and let go after", during > before and keeps(array) == before, f"{before} {during} {keeps(array)}")


def aligned(shape, dtype="float32", order="C", offset=0):
    """An array of numpy that begins at a multiple of 64, or `offset` bytes behind one."""
    size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
    room = numpy.zeros(size + 128, numpy.uint8)
    start = -room.ctypes.data % 64 + offset
    array = room[start:start + size].view(dtype).reshape(shape, order=order)
    array[...] = numpy.arange(array.size).reshape(shape)
    return array


for dtype in Ours.TYPES:
    for dimensions in ((7,), (3, 5), (2, 3, 4)):
        versioned = ours_to(numpy.from_dlpack, dtype, dimensions, f"ours to numpy, {dtype}{list(dimensions)}")
checks.check("numpy asks for the form with a version", versioned or tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1))
for versioned in (False, True):
    form = "versioned" if versioned else "plain"
    array = aligned((16, 8))
    theirs_to_us(array, f"numpy to us, {form}", versioned, sys.getrefcount)
    columns = aligned((16, 8), order="F")
    ours = Ours.of(columns, versioned)
    checks.check(f"numpy to us, {form}: column order is a layout", ours is not None and hf.hf_minor(ours.handle, 0) == 0 and hf.hf_minor(ours.handle, 1) == 1)
    ours.destroy()
    checks.check(f"numpy to us, {form}: every other element is refused", Ours.of(aligned((16, 8))[:, ::2], versioned) is None)
    checks.check(f"numpy to us, {form}: backwards is refused", Ours.of(aligned((16,))[::-1], versioned) is None)
    for offset in (4, 8, 16, 32):
        checks.check(f"numpy to us, {form}: {offset} bytes beside 64 is refused", Ours.of(aligned((16,), offset=offset), versioned) is None)
    for count in (0, 1):
        ours = Ours.of(aligned((count, 3)), versioned)
        checks.check(f"numpy to us, {form}: {count} rows", ours is not None and ours.size == count * 12)
        if ours is not None:
            ours.destroy()
refused = aligned((4,))
before = sys.getrefcount(refused)
Ours.of(refused[::2], True)
gc.collect()
checks.check("what we refuse is let go", sys.getrefcount(refused) == before)
frozen = aligned((4,))
frozen.flags.writeable = False
checks.check("numpy to us: read-only memory is not taken as mutable", Ours.of(frozen, True, is_mutable=True) is None)
mutable = Ours.of(aligned((4,)), True, is_mutable=True)
checks.check("numpy to us: writable memory may be", mutable is not None and mutable.is_mutable)
mutable.destroy()

if jax is None:
    checks.skip("exchange with jax", "jax is not installed")
else:
    for dtype in Ours.TYPES:
        for dimensions in ((7,), (3, 5), (2, 3, 4)):
            ours_to(jnp.from_dlpack, dtype, dimensions, f"ours to jax, {dtype}{list(dimensions)}")
    x = jnp.arange(128, dtype=jnp.float32).reshape(16, 8) + 1

    # jax tells by a donation whether somebody keeps the memory: under a foreign view it copies instead.
    def donated_in_place(array):
        f = jax.jit(lambda a: a + 1, donate_argnums=0)
        where = array.unsafe_buffer_pointer()
        out = f(array)
        out.block_until_ready()
        return out.unsafe_buffer_pointer() == where

    ours = Ours.of(x, True)
    checks.check("jax to us: we see its bytes at its address, nothing copied", ours is not None and ours.address == x.unsafe_buffer_pointer())
    view = (ctypes.c_float * 128).from_address(ours.address)
    checks.check("jax to us: the values are right", list(view) == [float(i + 1) for i in range(128)])
    checks.check("jax to us: constant for us", not ours.is_mutable)
    checks.check("jax to us: while we keep it jax does not donate in place (T-D11)", not donated_in_place(x))
    checks.check("jax to us: and our bytes stay as they were", list(view) == [float(i + 1) for i in range(128)])
    del x
    gc.collect()
    checks.check("jax to us: their array is gone, our buffer lives on", list(view)[127] == 128.0)
    ours.destroy()
    y = jnp.arange(128, dtype=jnp.float32) + 1
    once = Ours.of(y, True)
    once.destroy()
    gc.collect()
    checks.check("jax to us: once we let go jax donates in place again", donated_in_place(y))
checks.finish()
