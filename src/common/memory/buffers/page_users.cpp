#include "common/memory/buffers/page_users.hpp"

#include "common/process/fork_generation.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace rawduck {
namespace {

struct Users {
    const uint64_t fork_generation = ForkGeneration();
    std::mutex mutex; //!< guards the list, and is held while they are told
    std::vector<PageUser *> list;
};

//! Null before there was any. Those of the parent are of no concern to a child, whoever held their mutex.
std::atomic<Users *> current{nullptr};

Users *Own() {
    Users *users = current.load();
    return users && users->fork_generation == ForkGeneration() ? users : nullptr;
}

} // namespace

void AddPageUser(PageUser &user) {
    Users *users = current.load();
    while (!users || users->fork_generation != ForkGeneration()) {
        auto *fresh = new Users; // used until the process ends
        if (current.compare_exchange_strong(users, fresh)) {
            users = fresh;
        } else {
            delete fresh;
        }
    }
    std::lock_guard<std::mutex> guard(users->mutex);
    users->list.push_back(&user);
}

void RemovePageUser(PageUser &user) {
    if (Users *users = Own()) {
        std::lock_guard<std::mutex> guard(users->mutex);
        users->list.erase(std::remove(users->list.begin(), users->list.end(), &user), users->list.end());
    }
}

void TellPageUsers(char *begin, uint64_t bytes) noexcept {
    if (Users *users = Own()) {
        std::lock_guard<std::mutex> guard(users->mutex);
        for (PageUser *user : users->list) {
            user->ForgetPages(begin, bytes);
        }
    }
}

} // namespace rawduck
