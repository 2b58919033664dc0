// Turning whatever PyTorch throws into the plain error slot of the C ABI.
#pragma once

#include "musacoder/abi.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace musacoder {

inline int fail(int kind, const std::string& message) {
  mc_set_error(kind, message.data(), message.size());
  return kind;
}

inline int fail_with_current_exception() {
  try {
    throw;
  } catch (const c10::IndexError& e) {
    return fail(MC_INDEX_ERROR, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return fail(MC_VALUE_ERROR, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    return fail(MC_TYPE_ERROR, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return fail(MC_NOT_IMPLEMENTED_ERROR, e.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& e) {
    return fail(MC_OUT_OF_MEMORY_ERROR, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    return fail(MC_RUNTIME_ERROR, e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return fail(MC_MEMORY_ERROR, "out of memory");
  } catch (const std::exception& e) {
    const int kind = mc_translate();
    return kind != 0 ? kind : fail(MC_RUNTIME_ERROR, e.what());
  } catch (...) {
    const int kind = mc_translate();
    return kind != 0 ? kind : fail(MC_RUNTIME_ERROR, "unknown C++ exception");
  }
}

// Runs `body`; 0 on success, else the kind of the error that it threw.
template <class F>
int guarded(const F& body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    return fail_with_current_exception();
  }
}

} // namespace musacoder
