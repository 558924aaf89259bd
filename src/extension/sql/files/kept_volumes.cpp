#include "extension/sql/files/kept_volumes.hpp"

#include "io/resolve_volume.hpp"
#include "volume/names/path.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <map>
#include <mutex>

namespace rawduck {

namespace {

class VolumesOfTransaction final : public duckdb::ClientContextState {
  public:
    void TransactionCommit(duckdb::MetaTransaction &, duckdb::ClientContext &) override { Clear(); }
    void TransactionRollback(duckdb::MetaTransaction &, duckdb::ClientContext &) override { Clear(); }
    void Add(const VolumePin &volume) {
        std::lock_guard<std::mutex> guard(mutex_);
        volumes_.emplace(&*volume, volume);
    }

  private:
    //! The last pin unmounts its volume, which is I/O.
    void Clear() {
        std::map<const Volume *, VolumePin> volumes; // which goes after the guard
        std::lock_guard<std::mutex> guard(mutex_);
        volumes.swap(volumes_);
    }

    std::mutex mutex_; //!< guards volumes_; the registry's is taken under it
    std::map<const Volume *, VolumePin> volumes_;
};

} // namespace

void KeepUntilCommit(duckdb::ClientContext &context, const VolumePin &volume) {
    if (volume && !context.transaction.IsAutoCommit()) {
        context.registered_state->GetOrCreate<VolumesOfTransaction>("rawduck_volumes")->Add(volume);
    }
}

void KeepVolumeOf(duckdb::ClientContext &context, const std::string &path) {
    if (IsVolumePath(path) && !context.transaction.IsAutoCommit()) {
        KeepUntilCommit(context, MountedVolume(ResolveVolume(SplitVolumePath(path).target).identity));
    }
}

} // namespace rawduck
