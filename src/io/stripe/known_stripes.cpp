#include "io/stripe/known_stripes.hpp"

#include "common/process/fork_generation.hpp"

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace rawduck {
namespace {

struct KnownStripes {
    const uint64_t fork_generation = ForkGeneration();
    std::mutex mutex; //!< guards what follows; no other lock is taken under it
    //! By identity. Several who have looked it up by themselves have one each.
    std::multimap<std::string, std::weak_ptr<const Stripe>> by_member;
};

//! Never destroyed, and begun anew in a forked child, as the registry of volumes is.
KnownStripes &GetKnownStripes() {
    static std::atomic<KnownStripes *> current{new KnownStripes()};
    KnownStripes *known = current.load(std::memory_order_acquire);
    if (known->fork_generation != ForkGeneration()) {
        KnownStripes *fresh = new KnownStripes();
        if (current.compare_exchange_strong(known, fresh)) {
            return *fresh;
        }
        delete fresh;
    }
    return *known;
}

} // namespace

void RememberStripe(const std::shared_ptr<const Stripe> &stripe) {
    KnownStripes &known = GetKnownStripes();
    std::lock_guard<std::mutex> guard(known.mutex);
    for (auto entry = known.by_member.begin(); entry != known.by_member.end();) {
        entry = entry->second.expired() ? known.by_member.erase(entry) : std::next(entry);
    }
    for (const StripeMember &member : stripe->members) {
        known.by_member.emplace(member.target.identity, stripe);
    }
}

std::shared_ptr<const Stripe> KnownStripe(const Target &target) {
    KnownStripes &known = GetKnownStripes();
    std::lock_guard<std::mutex> guard(known.mutex);
    const auto [begin, end] = known.by_member.equal_range(target.identity);
    for (auto entry = begin; entry != end; ++entry) {
        if (auto stripe = entry->second.lock()) {
            return stripe;
        }
    }
    return nullptr;
}

} // namespace rawduck
