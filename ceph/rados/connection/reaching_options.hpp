//! What of a configuration file counts that a user with restricted access may have written. Free of librados.
#pragma once

#include <istream>
#include <map>
#include <string>

namespace rawduck_ceph {

//! Of a Ceph configuration file, for client.<user>: the options by which a client reaches its cluster, with their
//! values. None of them names a file that librados would read or write, as `keyring` and `log_file` do.
std::map<std::string, std::string> ReachingOptions(std::istream &file, const std::string &user);

} // namespace rawduck_ceph
