#include "extension/sql/files/kept_volumes.hpp"

#include "common/process/fork_generation.hpp"
#include "io/resolve_volume.hpp"
#include "volume/names/path.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rawduck {

namespace {

class VolumesOfTransaction final : public duckdb::ClientContextState {
  public:
    void TransactionCommit(duckdb::MetaTransaction &, duckdb::ClientContext &) override { Clear(); }
    void TransactionRollback(duckdb::MetaTransaction &, duckdb::ClientContext &) override { Clear(); }
    void Add(const VolumePin &volume) {
        std::lock_guard<std::mutex> guard(mutex_);
        if (volumes_.count(&*volume) == 0) {
            volumes_.emplace(&*volume, Kept{ForkGeneration(), volume, volume->HoldForWriting()});
        }
    }

  private:
    struct Kept {
        uint64_t fork_generation;
        VolumePin volume;
        std::shared_ptr<const void> hold; //!< goes first
    };

    //! The last pin unmounts its volume, which is I/O.
    void Clear() {
        std::map<const Volume *, Kept> volumes; // which goes after the guard
        {
            std::lock_guard<std::mutex> guard(mutex_);
            volumes.swap(volumes_);
        }
        for (auto &[key, kept] : volumes) {
            if (kept.fork_generation != ForkGeneration()) {
                Abandon(std::move(kept));
            }
        }
    }
    //! A forked child does not end what its parent holds: it would wait for threads that it does not have. It stays
    //! reachable, so that leak checkers do not report it.
    static void Abandon(Kept kept) {
        static auto *mutex = new std::mutex;
        static auto *abandoned = new std::vector<Kept>;
        std::lock_guard<std::mutex> guard(*mutex);
        abandoned->push_back(std::move(kept));
    }

    std::mutex mutex_; //!< guards volumes_; the registry's is taken under it
    std::map<const Volume *, Kept> volumes_;
};

} // namespace

void KeepUntilCommit(duckdb::ClientContext &context, const VolumePin &volume) noexcept {
    try {
        if (volume && !context.transaction.IsAutoCommit()) {
            context.registered_state->GetOrCreate<VolumesOfTransaction>("rawduck_volumes")->Add(volume);
        }
    } catch (const std::exception &) {
        // Somebody else has it for a moment, or there is no memory. What was to be done is done.
    }
}

void KeepVolumeOf(duckdb::ClientContext &context, const std::string &path) noexcept {
    try {
        if (IsVolumePath(path) && !context.transaction.IsAutoCommit()) {
            KeepUntilCommit(context, MountedVolume(ResolveVolume(SplitVolumePath(path).target).identity));
        }
    } catch (const std::exception &) {
        // As above; whoever copies finds out by himself what is wrong with the path.
    }
}

} // namespace rawduck
