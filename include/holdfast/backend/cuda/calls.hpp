// backend/cuda: CUDA's driver as a source of memory, streams and events; the only folder that includes its header.
// In the flow: below TrackedBuffer as any backend; its events order streams, its memory is ordered by them.
// All of it is templated on the driver, so that a double on the host runs the same code; the aliases name the real one.
// It never links to libcuda, never uses the null stream, never makes a thread.
// Continuations run on threads that wait for an event or call `run_completions`, never on the driver's.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <tuple>

/// The entry points of the driver that the library calls: a tag each, with the type and the name of the entry.
///
/// cuda.h maps a plain name to the version of this header, so the types are its own; the names are asked of the driver
/// for CUDA 12.0, whose forms these are, or for the later one that they came with. Source: cuda.h and cudaTypedefs.h of CUDA 13.0.
namespace holdfast::cuda_call {

/// Units: CUDA versions as the driver counts them.
inline constexpr int base_version = 12000;
template <class Function, int Version = base_version>
struct Call {
  using type = Function;
  static constexpr int version = Version;
};

struct Init : Call<decltype(::cuInit)> { static constexpr char name[] = "cuInit"; };
struct DriverGetVersion : Call<decltype(::cuDriverGetVersion)> { static constexpr char name[] = "cuDriverGetVersion"; };
struct DeviceGetCount : Call<decltype(::cuDeviceGetCount)> { static constexpr char name[] = "cuDeviceGetCount"; };
struct DeviceGet : Call<decltype(::cuDeviceGet)> { static constexpr char name[] = "cuDeviceGet"; };
struct DeviceGetAttribute : Call<decltype(::cuDeviceGetAttribute)> { static constexpr char name[] = "cuDeviceGetAttribute"; };
struct DeviceGetUuid : Call<decltype(::cuDeviceGetUuid)> { static constexpr char name[] = "cuDeviceGetUuid"; };
struct DeviceCanAccessPeer : Call<decltype(::cuDeviceCanAccessPeer)> { static constexpr char name[] = "cuDeviceCanAccessPeer"; };
struct DevicePrimaryCtxRetain : Call<decltype(::cuDevicePrimaryCtxRetain)> { static constexpr char name[] = "cuDevicePrimaryCtxRetain"; };
struct DevicePrimaryCtxRelease : Call<decltype(::cuDevicePrimaryCtxRelease)> { static constexpr char name[] = "cuDevicePrimaryCtxRelease"; };
struct CtxGetCurrent : Call<decltype(::cuCtxGetCurrent)> { static constexpr char name[] = "cuCtxGetCurrent"; };
struct CtxPushCurrent : Call<decltype(::cuCtxPushCurrent)> { static constexpr char name[] = "cuCtxPushCurrent"; };
struct CtxPopCurrent : Call<decltype(::cuCtxPopCurrent)> { static constexpr char name[] = "cuCtxPopCurrent"; };
struct CtxSynchronize : Call<decltype(::cuCtxSynchronize)> { static constexpr char name[] = "cuCtxSynchronize"; };
struct CtxEnablePeerAccess : Call<decltype(::cuCtxEnablePeerAccess)> { static constexpr char name[] = "cuCtxEnablePeerAccess"; };

struct StreamCreate : Call<decltype(::cuStreamCreate)> { static constexpr char name[] = "cuStreamCreate"; };
struct StreamDestroy : Call<decltype(::cuStreamDestroy)> { static constexpr char name[] = "cuStreamDestroy"; };
struct StreamQuery : Call<decltype(::cuStreamQuery)> { static constexpr char name[] = "cuStreamQuery"; };
struct StreamSynchronize : Call<decltype(::cuStreamSynchronize)> { static constexpr char name[] = "cuStreamSynchronize"; };
struct StreamWaitEvent : Call<decltype(::cuStreamWaitEvent)> { static constexpr char name[] = "cuStreamWaitEvent"; };
struct StreamGetId : Call<decltype(::cuStreamGetId)> { static constexpr char name[] = "cuStreamGetId"; };
struct StreamIsCapturing : Call<decltype(::cuStreamIsCapturing)> { static constexpr char name[] = "cuStreamIsCapturing"; };
struct ThreadExchangeStreamCaptureMode : Call<decltype(::cuThreadExchangeStreamCaptureMode)> { static constexpr char name[] = "cuThreadExchangeStreamCaptureMode"; };
struct EventCreate : Call<decltype(::cuEventCreate)> { static constexpr char name[] = "cuEventCreate"; };
struct EventDestroy : Call<decltype(::cuEventDestroy)> { static constexpr char name[] = "cuEventDestroy"; };
struct EventRecord : Call<decltype(::cuEventRecord)> { static constexpr char name[] = "cuEventRecord"; };
struct EventQuery : Call<decltype(::cuEventQuery)> { static constexpr char name[] = "cuEventQuery"; };
struct EventSynchronize : Call<decltype(::cuEventSynchronize)> { static constexpr char name[] = "cuEventSynchronize"; };
struct LaunchHostFunc : Call<decltype(::cuLaunchHostFunc)> { static constexpr char name[] = "cuLaunchHostFunc"; };

struct MemGetInfo : Call<decltype(::cuMemGetInfo)> { static constexpr char name[] = "cuMemGetInfo"; };
struct MemAlloc : Call<decltype(::cuMemAlloc)> { static constexpr char name[] = "cuMemAlloc"; };
struct MemFree : Call<decltype(::cuMemFree)> { static constexpr char name[] = "cuMemFree"; };
struct MemAllocManaged : Call<decltype(::cuMemAllocManaged)> { static constexpr char name[] = "cuMemAllocManaged"; };
struct MemHostAlloc : Call<decltype(::cuMemHostAlloc)> { static constexpr char name[] = "cuMemHostAlloc"; };
struct MemFreeHost : Call<decltype(::cuMemFreeHost)> { static constexpr char name[] = "cuMemFreeHost"; };
struct MemHostRegister : Call<decltype(::cuMemHostRegister)> { static constexpr char name[] = "cuMemHostRegister"; };
struct MemHostUnregister : Call<decltype(::cuMemHostUnregister)> { static constexpr char name[] = "cuMemHostUnregister"; };
struct MemcpyAsync : Call<decltype(::cuMemcpyAsync)> { static constexpr char name[] = "cuMemcpyAsync"; };

struct MemPoolCreate : Call<decltype(::cuMemPoolCreate)> { static constexpr char name[] = "cuMemPoolCreate"; };
struct MemPoolDestroy : Call<decltype(::cuMemPoolDestroy)> { static constexpr char name[] = "cuMemPoolDestroy"; };
struct MemPoolTrimTo : Call<decltype(::cuMemPoolTrimTo)> { static constexpr char name[] = "cuMemPoolTrimTo"; };
struct MemPoolSetAttribute : Call<decltype(::cuMemPoolSetAttribute)> { static constexpr char name[] = "cuMemPoolSetAttribute"; };
struct MemPoolGetAttribute : Call<decltype(::cuMemPoolGetAttribute)> { static constexpr char name[] = "cuMemPoolGetAttribute"; };
struct MemPoolSetAccess : Call<decltype(::cuMemPoolSetAccess)> { static constexpr char name[] = "cuMemPoolSetAccess"; };
struct MemAllocFromPoolAsync : Call<decltype(::cuMemAllocFromPoolAsync)> { static constexpr char name[] = "cuMemAllocFromPoolAsync"; };
struct MemFreeAsync : Call<decltype(::cuMemFreeAsync)> { static constexpr char name[] = "cuMemFreeAsync"; };

struct MemGetAllocationGranularity : Call<decltype(::cuMemGetAllocationGranularity)> { static constexpr char name[] = "cuMemGetAllocationGranularity"; };
struct MemAddressReserve : Call<decltype(::cuMemAddressReserve)> { static constexpr char name[] = "cuMemAddressReserve"; };
struct MemAddressFree : Call<decltype(::cuMemAddressFree)> { static constexpr char name[] = "cuMemAddressFree"; };
struct MemCreate : Call<decltype(::cuMemCreate)> { static constexpr char name[] = "cuMemCreate"; };
struct MemRelease : Call<decltype(::cuMemRelease)> { static constexpr char name[] = "cuMemRelease"; };
struct MemMap : Call<decltype(::cuMemMap)> { static constexpr char name[] = "cuMemMap"; };
struct MemUnmap : Call<decltype(::cuMemUnmap)> { static constexpr char name[] = "cuMemUnmap"; };
struct MemSetAccess : Call<decltype(::cuMemSetAccess)> { static constexpr char name[] = "cuMemSetAccess"; };
struct MemExportToShareableHandle : Call<decltype(::cuMemExportToShareableHandle)> { static constexpr char name[] = "cuMemExportToShareableHandle"; };
struct MemImportFromShareableHandle : Call<decltype(::cuMemImportFromShareableHandle)> { static constexpr char name[] = "cuMemImportFromShareableHandle"; };

struct MemGetAddressRange : Call<decltype(::cuMemGetAddressRange)> { static constexpr char name[] = "cuMemGetAddressRange"; };
struct IpcGetMemHandle : Call<decltype(::cuIpcGetMemHandle)> { static constexpr char name[] = "cuIpcGetMemHandle"; };
struct IpcOpenMemHandle : Call<decltype(::cuIpcOpenMemHandle)> { static constexpr char name[] = "cuIpcOpenMemHandle"; };
struct IpcCloseMemHandle : Call<decltype(::cuIpcCloseMemHandle)> { static constexpr char name[] = "cuIpcCloseMemHandle"; };

struct MemPoolExportToShareableHandle : Call<decltype(::cuMemPoolExportToShareableHandle)> { static constexpr char name[] = "cuMemPoolExportToShareableHandle"; };
struct MemPoolImportFromShareableHandle : Call<decltype(::cuMemPoolImportFromShareableHandle)> { static constexpr char name[] = "cuMemPoolImportFromShareableHandle"; };
struct MemPoolExportPointer : Call<decltype(::cuMemPoolExportPointer)> { static constexpr char name[] = "cuMemPoolExportPointer"; };
struct MemPoolImportPointer : Call<decltype(::cuMemPoolImportPointer)> { static constexpr char name[] = "cuMemPoolImportPointer"; };
struct MemRetainAllocationHandle : Call<decltype(::cuMemRetainAllocationHandle)> { static constexpr char name[] = "cuMemRetainAllocationHandle"; };
struct MemGetAllocationPropertiesFromHandle : Call<decltype(::cuMemGetAllocationPropertiesFromHandle)> { static constexpr char name[] = "cuMemGetAllocationPropertiesFromHandle"; };
struct MemGetHandleForAddressRange : Call<decltype(::cuMemGetHandleForAddressRange)> { static constexpr char name[] = "cuMemGetHandleForAddressRange"; };
struct PointerGetAttribute : Call<decltype(::cuPointerGetAttribute)> { static constexpr char name[] = "cuPointerGetAttribute"; };

struct MulticastCreate : Call<decltype(::cuMulticastCreate), 12010> { static constexpr char name[] = "cuMulticastCreate"; };
struct MulticastAddDevice : Call<decltype(::cuMulticastAddDevice), 12010> { static constexpr char name[] = "cuMulticastAddDevice"; };
struct MulticastBindMem : Call<decltype(::cuMulticastBindMem), 12010> { static constexpr char name[] = "cuMulticastBindMem"; };
struct MulticastBindAddr : Call<decltype(::cuMulticastBindAddr), 12010> { static constexpr char name[] = "cuMulticastBindAddr"; };
struct MulticastUnbind : Call<decltype(::cuMulticastUnbind), 12010> { static constexpr char name[] = "cuMulticastUnbind"; };
struct MulticastGetGranularity : Call<decltype(::cuMulticastGetGranularity), 12010> { static constexpr char name[] = "cuMulticastGetGranularity"; };

/// All of them, for what is done once for each.
using All = std::tuple<
    Init, DriverGetVersion, DeviceGetCount, DeviceGet, DeviceGetAttribute, DeviceGetUuid, DeviceCanAccessPeer,
    DevicePrimaryCtxRetain, DevicePrimaryCtxRelease, CtxGetCurrent, CtxPushCurrent, CtxPopCurrent, CtxSynchronize, CtxEnablePeerAccess,
    StreamIsCapturing, ThreadExchangeStreamCaptureMode, StreamCreate, StreamDestroy,
    StreamQuery, StreamSynchronize, StreamWaitEvent, StreamGetId, EventCreate, EventDestroy, EventRecord, EventQuery, EventSynchronize,
    LaunchHostFunc, MemGetInfo, MemAlloc, MemFree, MemAllocManaged, MemHostAlloc, MemFreeHost, MemHostRegister, MemHostUnregister,
    MemcpyAsync, MemPoolCreate, MemPoolDestroy, MemPoolTrimTo, MemPoolSetAttribute, MemPoolGetAttribute, MemPoolSetAccess,
    MemAllocFromPoolAsync, MemFreeAsync, MemGetAllocationGranularity, MemAddressReserve, MemAddressFree, MemCreate, MemRelease, MemMap,
    MemUnmap, MemSetAccess, MemExportToShareableHandle, MemImportFromShareableHandle, MemGetAddressRange, IpcGetMemHandle, IpcOpenMemHandle,
    IpcCloseMemHandle, MemPoolExportToShareableHandle, MemPoolImportFromShareableHandle, MemPoolExportPointer, MemPoolImportPointer,
    MemRetainAllocationHandle, MemGetAllocationPropertiesFromHandle, MemGetHandleForAddressRange, PointerGetAttribute,
    MulticastCreate, MulticastAddDevice, MulticastBindMem, MulticastBindAddr, MulticastUnbind, MulticastGetGranularity>;

/// "NAME failed", for the text of an error.
template <class Entry>
inline constexpr auto failed = [] {
  std::array<char, sizeof(Entry::name) + 7> text{};
  std::size_t at = 0;
  for (const char* from : {&Entry::name[0], " failed"})
    for (; *from != '\0'; ++from) text[at++] = *from;
  return text;
}();

}  // namespace holdfast::cuda_call
