#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes *.assignment.pb, the buffer assignments behind T-M1 to T-M5 of runtime.md as XLA's CPU backend serialises them (needs jax)."""
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp

here = pathlib.Path(__file__).parent


def rms(a, b):
    return a * jax.lax.rsqrt(jnp.mean(a * a, axis=-1, keepdims=True) + 1e-6) * b


def scan(a):
    def body(c, x):
        c = jnp.tanh(c @ a)
        return c, c.sum()
    return jax.lax.scan(body, a, jnp.arange(8.0))


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


cases = {
    "tm1_rms": (jax.jit(rms), [f32(128, 128)] * 2),
    "tm1_rms_donated": (jax.jit(rms, donate_argnums=0), [f32(128, 128)] * 2),
    "tm2_products": (jax.jit(lambda a, b, c: ((a @ b) @ c) @ a), [f32(256, 256)] * 3),
    "tm3_identity": (jax.jit(lambda a: a + 0), [f32(64, 64)]),
    "tm3_identity_donated": (jax.jit(lambda a: a + 0, donate_argnums=0), [f32(64, 64)]),
    "tm4_scan": (jax.jit(scan), [f32(64, 64)]),
    "tm5_sort": (jax.jit(lambda a: jnp.sort(a, axis=0) @ a), [f32(256, 256)]),
}
for name, (function, arguments) in cases.items():
    stats = function.lower(*arguments).compile().memory_analysis()
    (here / f"{name}.assignment.pb").write_bytes(stats.serialized_buffer_assignment_proto)
    print(name, stats.argument_size_in_bytes, stats.output_size_in_bytes, stats.alias_size_in_bytes, stats.temp_size_in_bytes,
          stats.peak_memory_in_bytes)
