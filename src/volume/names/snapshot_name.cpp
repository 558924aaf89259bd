#include "volume/names/snapshot_name.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace rawduck {

namespace {

constexpr char READER_PREFIX[] = "latest-";

constexpr const char *ORIGIN_ENDING = ".origin";
constexpr const char *RECEIVING_ENDING = ".receiving";

//! The longest first: each ends with the one before it.
constexpr const char *LOG_ENDINGS[] = {".wal.checkpoint", ".wal.recovery", ".wal"};

bool IsAllowed(char character) {
    return isalnum(static_cast<unsigned char>(character)) != 0 || character == '-' || character == '_' ||
           character == '.' || character == ':';
}

} // namespace

void CheckSnapshotName(const std::string &name) {
    const auto refuse = [&name](const std::string &why) {
        throw Error(ErrorCode::INVALID, "\"" + name + "\" cannot be the name of a snapshot: " + why);
    };
    if (name.empty() || name.size() > SNAPSHOT_NAME_BYTES_MAX) {
        refuse("it has " + std::to_string(name.size()) + " bytes; give it 1 to " +
               std::to_string(SNAPSHOT_NAME_BYTES_MAX));
    }
    if (!std::all_of(name.begin(), name.end(), IsAllowed)) {
        refuse("use letters, digits, \"-\", \"_\", \".\" and \":\"");
    }
    if (!DatabaseOfLog("x" + name).empty()) {
        refuse("it ends as the name of a log does");
    }
    if (!SnapshotOfOrigin("x" + name).empty()) {
        refuse("it ends as the name of what is known of a received snapshot does");
    }
    if (name == LATEST) {
        refuse("\"latest\" stands for the last durable state of a file");
    }
    if (name.compare(0, sizeof(READER_PREFIX) - 1, READER_PREFIX) == 0) {
        refuse("rawduck keeps snapshots for readers under names that begin with \"latest-\"");
    }
}

std::string ReaderSnapshot(uint64_t number) {
    char digits[17];
    snprintf(digits, sizeof(digits), "%012llx",
             static_cast<unsigned long long>(number)); // ReaderBytes::COUNT is 2^48
    return std::string(READER_PREFIX) + digits;
}

std::optional<uint64_t> ReaderOf(const std::string &snapshot) {
    uint64_t number = 0;
    const char *const begin = snapshot.data() + std::min(snapshot.size(), sizeof(READER_PREFIX) - 1);
    const char *const end = snapshot.data() + snapshot.size();
    const auto parsed = std::from_chars(begin, end, number, 16);
    const bool is_reader =
        parsed.ec == std::errc() && parsed.ptr == end && snapshot == ReaderSnapshot(number);
    return is_reader ? std::optional<uint64_t>(number) : std::nullopt;
}

std::string SnapshotFileName(const std::string &file, const std::string &snapshot) {
    return file + "@" + snapshot;
}

SnapshotName SplitSnapshotName(const std::string &name) {
    const size_t at = name.rfind('@');
    return at == std::string::npos ? SnapshotName{name, ""}
                                   : SnapshotName{name.substr(0, at), name.substr(at + 1)};
}

std::string SourceOfReader(const std::string &file) {
    const SnapshotName parts = SplitSnapshotName(file);
    return parts.snapshot == LATEST ? parts.file : file;
}

std::string OriginNameOf(const std::string &snapshot_file) {
    return snapshot_file + ORIGIN_ENDING;
}

std::string SnapshotOfOrigin(const std::string &name) {
    return EndsWith(name, ORIGIN_ENDING) ? name.substr(0, name.size() - std::strlen(ORIGIN_ENDING)) : "";
}

std::string ReceivingNameOf(const std::string &file) {
    return file + RECEIVING_ENDING;
}

std::string OriginOfReceiving(const std::string &name) {
    const std::string database = DatabaseOfLog(name), received = database.empty() ? name : database;
    return EndsWith(received, RECEIVING_ENDING) ? OriginNameOf(received) : "";
}

std::vector<std::string> LogNamesOf(const std::string &database) {
    std::vector<std::string> names;
    for (const char *ending : LOG_ENDINGS) {
        names.push_back(database + ending);
    }
    return names;
}

std::string DatabaseOfLog(const std::string &name) {
    for (const std::string ending : LOG_ENDINGS) {
        if (name.size() > ending.size() &&
            name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
            return name.substr(0, name.size() - ending.size());
        }
    }
    return "";
}

} // namespace rawduck
