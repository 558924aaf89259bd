//! Functions that Python calls throw nothing: they return that they failed, and keep why.
#pragma once

#include <exception>
#include <string>

namespace rawduck::gpu {

//! Why the last call in this thread failed that did; what rawduck_gpu_error returns.
inline std::string &LastError() {
    thread_local std::string message;
    return message;
}

//! What `call` returns; `failed`, and the message for rawduck_gpu_error, where it throws.
template <class CALL, class RESULT> RESULT Guarded(RESULT failed, const CALL &call) {
    try {
        return call();
    } catch (const std::exception &error) {
        LastError() = error.what();
        return failed;
    }
}

} // namespace rawduck::gpu
