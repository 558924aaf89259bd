//! Errors of librados as this project's errors: the object, what was tried, Ceph's error, and
//! what to do next.
#pragma once

#include "common/error.hpp"

#include <string>

namespace rawduck_ceph {

using rawduck::ErrnoText;
using rawduck::Error;
using rawduck::ErrorCode;

//! `code`: a negative errno from librados. `target`: a path such as rados://tpch/lineitem/0. `action`: what
//! was tried, such as "read".
[[noreturn]] void ThrowRadosError(int code, const std::string &target, const std::string &action);

} // namespace rawduck_ceph
