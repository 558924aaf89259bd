//! The names of a pool's objects. Ceph has no index of names: each placement group is
//! listed, several in parallel.
#pragma once

#include <rados/librados.h>

#include <cstddef>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Adds the names of all objects of the ioctx's namespace that begin with `prefix`, in no order
//! and possibly with duplicates; stops soon after `limit` names. Returns a negative errno when
//! a request fails. Thread-safe.
int ListObjects(rados_ioctx_t io, const std::string &prefix, size_t limit, std::vector<std::string> &names);

} // namespace rawduck_ceph
