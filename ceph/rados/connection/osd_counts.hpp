//! How many OSDs a cluster has, and how many of them are on other hosts than this process. Free of librados.
#pragma once

#include <cstddef>
#include <set>
#include <string>

namespace rawduck_ceph {

struct OsdCounts {
    size_t up = 0;
    //! Of these, OSDs with an address that is none of this host: their processors are not this process's.
    size_t elsewhere = 0;
};

//! From the text that the monitors' command `osd dump` prints, a line for each OSD. `own_addresses`: of this
//! host, as text.
OsdCounts CountOsds(const std::string &dump, const std::set<std::string> &own_addresses);

//! The IP addresses of this host's interfaces, as text.
std::set<std::string> OwnAddresses();

} // namespace rawduck_ceph
