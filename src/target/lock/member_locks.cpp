//! TargetLock of a stripe: one of each member.
#include "target/lock/target_lock.hpp"
#include "target/stripe.hpp"

#include <algorithm>

namespace rawduck {

void TargetLock::LockMembers(const Target &target, Mode mode) {
    std::vector<Target> parts = PartsOf(target);
    std::sort(parts.begin(), parts.end(),
              [](const Target &a, const Target &b) { return a.identity < b.identity; });
    for (const Target &part : parts) {
        members_.push_back(std::make_unique<TargetLock>(part, mode));
    }
    mode_ = mode;
}

// Where one is refused, those before it go back to what they were.
void TargetLock::ChangeMembers(Mode mode) {
    for (size_t i = 0; i < members_.size(); i++) {
        try {
            members_[i]->Change(mode);
        } catch (...) {
            while (i-- > 0) {
                members_[i]->Change(mode_); // to SHARED, which cannot conflict
            }
            throw;
        }
    }
    mode_ = mode;
}

} // namespace rawduck
