//! How much processor time the control groups of this process allow.
#pragma once

namespace rawduck_ceph {

//! In processors; infinite without a limit. Reads files of the kernel (cgroup v1 and v2), at most once in ten
//! seconds. Thread-safe.
double ProcessorQuota();

} // namespace rawduck_ceph
