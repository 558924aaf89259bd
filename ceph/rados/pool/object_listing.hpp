//! The names of a pool's objects. Ceph has no index of names: each placement group is
//! listed, several in parallel.
#pragma once

#include <rados/librados.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Adds the names of all objects of the ioctx's namespace that begin with `prefix`, in no order
//! and possibly with duplicates; stops soon after `limit` names. Returns a negative errno when
//! a request fails, -ECANCELED when the thread is interrupted: then requests may be in flight for a while yet.
//! `owner`: keeps the ioctx open. Thread-safe.
int ListObjects(std::shared_ptr<const void> owner, rados_ioctx_t io, const std::string &prefix, size_t limit,
                std::vector<std::string> &names);

} // namespace rawduck_ceph
