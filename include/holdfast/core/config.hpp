// core: the vocabulary every other folder speaks: sizes, ids, errors, small containers, bounded readers.
// In the flow: below everything; it includes nothing of the library outside this folder.
// It owns no memory policy, no thread and no global state.
// Every macro of the library is in this file; none changes a type's layout or which declarations exist.
// It never throws, logs or touches a device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#define HOLDFAST_VERSION_MAJOR 0
#define HOLDFAST_VERSION_MINOR 1
#define HOLDFAST_VERSION_PATCH 0

/// Checks a precondition of the caller; define it before the first include to report instead of abort.
#ifndef HOLDFAST_ASSERT
#define HOLDFAST_ASSERT(condition) ((condition) ? static_cast<void>(0) : ::std::abort())
#endif

#if defined(__cpp_exceptions)
#define HOLDFAST_HAS_EXCEPTIONS 1
#else
#define HOLDFAST_HAS_EXCEPTIONS 0
#endif

/// Throws where a foreign contract demands it (`interop/` only); terminates without exceptions.
#ifndef HOLDFAST_THROW
#if HOLDFAST_HAS_EXCEPTIONS
#define HOLDFAST_THROW(exception) throw exception
#else
#define HOLDFAST_THROW(exception) ::std::abort()
#endif
#endif

/// Marks a place that control never reaches.
#define HOLDFAST_UNREACHABLE() __builtin_unreachable()

/// Lets an empty policy take no room in its owner.
#define HOLDFAST_NO_UNIQUE_ADDRESS [[no_unique_address]]

/// Keeps failure paths out of line.
#define HOLDFAST_COLD [[gnu::cold, gnu::noinline]]

namespace holdfast {

/// The place in the library or its user where an error was made.
struct Site {
  const char* file = nullptr;
  int line = 0;
};

}  // namespace holdfast

/// The address of a static `Site` for this line (`std::source_location` does not compile under clang 14).
#define HOLDFAST_SITE                                              \
  ([]() noexcept -> const ::holdfast::Site* {                      \
    static constexpr ::holdfast::Site site{__FILE__, __LINE__};    \
    return &site;                                                  \
  }())
