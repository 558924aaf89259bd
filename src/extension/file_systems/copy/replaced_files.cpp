#include "extension/file_systems/copy/replaced_files.hpp"

#include "common/error.hpp"
#include "target/occupants/contents.hpp"
#include "target/open_target.hpp"
#include "target/system/sysfs.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

constexpr std::string_view UNFINISHED_PREFIX = "tmp_"; // as DuckDB names what COPY writes

class ExistingFilesOfQuery final : public duckdb::ClientContextState {
  public:
    void QueryBegin(duckdb::ClientContext &) override { Clear(); }
    void QueryEnd() override { Clear(); }
    void Remember(const std::string &path) {
        std::lock_guard<std::mutex> guard(mutex_);
        paths_.insert(path);
    }
    bool Has(const std::string &path) {
        std::lock_guard<std::mutex> guard(mutex_);
        return paths_.count(path) != 0;
    }

  private:
    void Clear() {
        std::lock_guard<std::mutex> guard(mutex_);
        paths_.clear();
    }

    std::mutex mutex_; //!< guards paths_; no other lock is taken under it
    std::set<std::string> paths_;
};

//! Null outside of queries.
duckdb::shared_ptr<ExistingFilesOfQuery> ExistingOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    const auto context = duckdb::FileOpener::TryGetClientContext(opener);
    return context ? context->registered_state->GetOrCreate<ExistingFilesOfQuery>("rawduck_existing_files")
                   : nullptr;
}

} // namespace

void RememberExisting(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path) {
    if (const auto existing = ExistingOf(opener)) {
        existing->Remember(path);
    }
}

void RequireReplaceable(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path) {
    const std::string name = BaseName(path);
    if (name.compare(0, UNFINISHED_PREFIX.size(), UNFINISHED_PREFIX) != 0) {
        return;
    }
    const std::string replaced =
        path.substr(0, path.size() - name.size()) + name.substr(UNFINISHED_PREFIX.size());
    const auto existing = ExistingOf(opener);
    if (!existing || !existing->Has(replaced)) {
        return;
    }
    if (faccessat(AT_FDCWD, replaced.c_str(), W_OK, AT_EACCESS) == 0) {
        RequireNoVolume(replaced);
        return;
    }
    if (errno == ENOENT) {
        return;
    }
    const int error_number = errno;
    throw Error(ErrorCode::PERMISSION,
                replaced +
                    ": cannot replace it, because this user may not write to it: " + ErrnoText(error_number) +
                    "; nothing was written. Give yourself write access to the file, remove it, or name "
                    "another one");
}

void RequireNoVolume(const std::string &path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return; // nothing, or what is refused for what it is
    }
    const Target target = ResolveTarget(path);
    int error_number = 0;
    const FileDescriptor fd = TryOpenTarget(target, O_RDONLY, error_number);
    if (fd.IsOpen() && HoldsVolume(target, fd.Get())) { // who may not read it is told by what comes next
        throw Error(ErrorCode::INVALID,
                    path + ": it is a rawduck volume, which is not replaced or removed like this; nvme://" +
                        target.path +
                        "/<name> names a file on it. To do without the volume, remove its file first");
    }
}

} // namespace rawduck
