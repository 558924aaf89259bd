#include "volume/names/file_name.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"

#include <algorithm>
#include <cctype>
#include <unistd.h>

namespace rawduck {

namespace {

//! Takes a name apart from its start. What does not match is not taken.
class NameReader {
  public:
    explicit NameReader(std::string name) : name_(std::move(name)) {}
    bool AtEnd() const { return at_ == name_.size(); }
    bool Take(const std::string &text) {
        const bool there = name_.compare(at_, text.size(), text) == 0;
        at_ += there ? text.size() : 0;
        return there;
    }
    bool TakeNumber() { return TakeAll(isdigit); }
    bool TakeWord() { return TakeAll(isalnum); }

  private:
    bool TakeAll(int (*fits)(int)) {
        const size_t begin = at_;
        while (at_ < name_.size() && fits(static_cast<unsigned char>(name_[at_])) != 0) {
            at_++;
        }
        return at_ > begin;
    }
    const std::string name_;
    size_t at_ = 0;
};

} // namespace

FileKind KindFromName(const std::string &name, FileKind otherwise) {
    const std::string base = name.substr(name.rfind('/') + 1);
    if (EndsWith(base, ".wal") || EndsWith(base, ".wal.checkpoint") || EndsWith(base, ".wal.recovery")) {
        return FileKind::WAL;
    }
    return otherwise;
}

TemporaryName TemporaryNameOf(const std::string &name) {
    NameReader rest(name.substr(name.rfind('/') + 1));
    if (!rest.Take("duckdb_temp_" + std::to_string(getpid()) + "_") || !rest.TakeNumber() ||
        !rest.Take("_")) {
        return TemporaryName::NONE;
    }
    TemporaryName found = TemporaryName::NONE;
    if (rest.Take("owner")) {
        found = TemporaryName::OWNER;
    } else if (rest.Take("block-") && rest.TakeNumber() && rest.Take(".block")) {
        found = TemporaryName::BLOCK;
    } else if (rest.Take("storage_") && rest.TakeWord() && rest.Take("-") && rest.TakeNumber() &&
               rest.Take(".tmp")) {
        found = TemporaryName::BLOCKS;
    }
    return rest.AtEnd() ? found : TemporaryName::NONE;
}

void CheckFileName(const std::string &target, const std::string &name) {
    const auto refuse = [&name](const std::string &why) {
        throw Error(ErrorCode::INVALID, "\"" + name + "\" cannot be the name of a file on a volume: " + why);
    };
    if (name.empty()) {
        throw Error(ErrorCode::INVALID, target +
                                            ": the path names a volume but no file on it; write nvme://" +
                                            target + "/<file>, such as nvme://" + target + "/sales.duckdb");
    }
    if (name.size() > NAME_BYTES_MAX) {
        refuse("it has " + std::to_string(name.size()) + " bytes, and at most " +
               std::to_string(NAME_BYTES_MAX) + " are allowed");
    }
    if (name.find('\0') != std::string::npos) {
        throw Error(ErrorCode::INVALID, "the name of a file on a volume cannot contain a NUL byte");
    }
    size_t begin = 0;
    while (begin <= name.size()) {
        const size_t slash = std::min(name.find('/', begin), name.size());
        const std::string component = name.substr(begin, slash - begin);
        if (component.empty()) {
            refuse("it has an empty component; use single slashes, none at the start or the end");
        }
        if (component == "." || component == "..") {
            refuse("\"" + component + "\" is not allowed; volumes have no relative paths");
        }
        begin = slash + 1;
    }
}

} // namespace rawduck
