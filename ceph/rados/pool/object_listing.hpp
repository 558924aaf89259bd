//! The names of a pool's objects. Ceph has no index of
//! them: every placement group is asked, many side by side.
#pragma once

#include <rados/librados.h>

#include <cstddef>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Adds the names of all objects of the ioctx's namespace that begin with
//! `prefix`, in no order, and perhaps one twice; stops soon after `most` of
//! them. Returns a negative errno when not all could be asked for. Thread-safe.
int ListObjects(rados_ioctx_t io, const std::string &prefix, size_t most, std::vector<std::string> &names);

} // namespace rawduck_ceph
