#include "direct/locked_here.hpp"

#include "common/error.hpp"
#include "target/target.hpp"
#include "volume/names/snapshot_name.hpp"

#include <mutex>
#include <set>
#include <sys/stat.h>

namespace rawduck {

namespace {

struct Locked {
    std::mutex mutex;
    std::multiset<std::string> identities;
};

//! Never destroyed: handles may outlive static objects.
Locked &All() {
    static auto &locked = *new Locked;
    return locked;
}

} // namespace

LockedHere::LockedHere(std::string identity) : identity_(std::move(identity)) {
    const std::lock_guard<std::mutex> guard(All().mutex);
    All().identities.insert(identity_);
}

LockedHere::~LockedHere() {
    const std::lock_guard<std::mutex> guard(All().mutex);
    All().identities.erase(All().identities.find(identity_));
}

bool LockedHere::Has(const std::string &identity) {
    const std::lock_guard<std::mutex> guard(All().mutex);
    return All().identities.count(identity) > 0;
}

void RequireOwnLog(const std::string &path) {
    const std::string database = DatabaseOfLog(path);
    struct stat status;
    if (!database.empty() && stat(database.c_str(), &status) == 0 && !LockedHere::Has(IdentityOf(status))) {
        throw Error(ErrorCode::LOCKED,
                    path + ": it may hold what another process has committed meanwhile, since "
                           "its database is there and is not attached here; ATTACH it again");
    }
}

} // namespace rawduck
