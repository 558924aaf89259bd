#include "ceph/rados/connection/osd_counts.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <sstream>

namespace rawduck_ceph {

namespace {

//! The first address of a line such as "osd.0 up in … [v2:10.0.0.1:6800/7,v1:10.0.0.1:6801/7] …", which is the
//! public one. An IPv6 address is in brackets.
std::string AddressOf(const std::string &line) {
    size_t start = line.find("v2:");
    start = start == std::string::npos ? line.find("v1:") : start;
    if (start == std::string::npos) {
        return {};
    }
    start += 3;
    const bool bracketed = line.compare(start, 1, "[") == 0;
    start += bracketed ? 1 : 0;
    const size_t end = line.find(bracketed ? ']' : ':', start);
    return line.substr(start, end - start);
}

} // namespace

OsdCounts CountOsds(const std::string &dump, const std::set<std::string> &own_addresses) {
    OsdCounts counts;
    std::istringstream lines(dump);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name, state;
        words >> name >> state;
        if (name.compare(0, 4, "osd.") != 0 || state != "up") {
            continue;
        }
        counts.up++;
        counts.elsewhere += own_addresses.count(AddressOf(line)) == 0 ? 1 : 0;
    }
    return counts;
}

std::set<std::string> OwnAddresses() {
    std::set<std::string> addresses;
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) {
        return addresses;
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner(list, freeifaddrs);
    for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        char text[INET6_ADDRSTRLEN] = {};
        if (!entry->ifa_addr) {
            continue;
        }
        if (entry->ifa_addr->sa_family == AF_INET) {
            const auto *address = reinterpret_cast<const sockaddr_in *>(entry->ifa_addr);
            inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
        } else if (entry->ifa_addr->sa_family == AF_INET6) {
            const auto *address = reinterpret_cast<const sockaddr_in6 *>(entry->ifa_addr);
            inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text);
        }
        addresses.insert(text);
    }
    return addresses;
}

} // namespace rawduck_ceph
