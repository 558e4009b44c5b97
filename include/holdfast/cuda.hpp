// SPDX-License-Identifier: Apache-2.0
// All that needs CUDA's header, beside `holdfast.hpp`, which has what needs no vendor's SDK. Neighbours of CCCL are apart:
// `backend/cuda/resource.hpp` wants its headers, too. Inside the library nothing includes it.
#pragma once

#include "holdfast/backend/cuda/calls.hpp"
#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/cuda_event.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/dma_buf.hpp"
#include "holdfast/backend/cuda/driver.hpp"
#include "holdfast/backend/cuda/error.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/import_cache.hpp"
#include "holdfast/backend/cuda/ipc.hpp"
#include "holdfast/backend/cuda/multicast.hpp"
#include "holdfast/backend/cuda/pool_ipc.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/recording_stream.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/share.hpp"
#include "holdfast/backend/cuda/shared_fabric.hpp"
#include "holdfast/backend/cuda/shared_file.hpp"
#include "holdfast/backend/cuda/stream.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/cuda/vmm_segment.hpp"
