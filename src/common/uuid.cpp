#include "common/uuid.hpp"

#include "common/error.hpp"

#include <cerrno>
#include <cstdio>
#include <sys/random.h>

namespace rawduck {

std::string UuidText(const Uuid &uuid) {
    std::string text;
    for (size_t i = 0; i < uuid.size(); i++) {
        char byte[3];
        snprintf(byte, sizeof(byte), "%02x", uuid[i]);
        text += byte;
        if (i == 3 || i == 5 || i == 7 || i == 9) {
            text += '-';
        }
    }
    return text;
}

Uuid MakeUuid() {
    Uuid uuid;
    if (getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) {
        throw Error(ErrorCode::IO, "the kernel gave no random bytes for a UUID: " + ErrnoText(errno));
    }
    uuid[6] = (uuid[6] & 0x0F) | 0x40;
    uuid[8] = (uuid[8] & 0x3F) | 0x80;
    return uuid;
}

} // namespace rawduck
