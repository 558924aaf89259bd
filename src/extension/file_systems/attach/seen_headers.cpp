#include "extension/file_systems/attach/seen_headers.hpp"

#include "common/error.hpp"
#include "common/units.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

namespace rawduck {

namespace {

//! Where DuckDB's three headers end.
constexpr uint64_t HEADERS_BYTES = 3 * 4 * KIB;

class HeadersOfQuery final : public duckdb::ClientContextState {
  public:
    void QueryBegin(duckdb::ClientContext &) override { Clear(); }
    void QueryEnd() override { Clear(); }
    void Remember(const std::string &path, std::string headers) {
        std::lock_guard<std::mutex> guard(mutex_);
        seen_[path] = std::move(headers);
    }
    //! What they were when they were looked at, once; empty when nobody did.
    std::optional<std::string> Take(const std::string &path) {
        std::lock_guard<std::mutex> guard(mutex_);
        const auto found = seen_.find(path);
        if (found == seen_.end()) {
            return std::nullopt;
        }
        std::optional<std::string> headers(std::move(found->second));
        seen_.erase(found);
        return headers;
    }

  private:
    void Clear() {
        std::lock_guard<std::mutex> guard(mutex_);
        seen_.clear();
    }

    std::mutex mutex_;                        //!< guards seen_; no other lock is taken under it
    std::map<std::string, std::string> seen_; //!< by path
};

//! Null outside of queries.
duckdb::shared_ptr<HeadersOfQuery> SeenBy(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    const auto context = duckdb::FileOpener::TryGetClientContext(opener);
    return context ? context->registered_state->GetOrCreate<HeadersOfQuery>("rawduck_headers") : nullptr;
}

} // namespace

std::string HeadersOf(StorageFile &file) {
    std::string headers(std::min(file.Size(), HEADERS_BYTES), '\0');
    headers.resize(file.Read(headers.data(), headers.size(), 0));
    return headers;
}

void RememberHeaders(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path,
                     const FindHeaders &headers) {
    if (const auto seen = SeenBy(opener)) {
        seen->Remember(path, headers());
    }
}

void RequireSeenHeaders(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path,
                        bool creates, const FindHeaders &headers) {
    const auto seen = SeenBy(opener);
    std::optional<std::string> before = seen ? seen->Take(path) : std::nullopt;
    if (!before && creates) {
        before = "";
    }
    if (before && *before != headers()) {
        throw Error(ErrorCode::LOCKED,
                    path + ": it was written to by another process while it was being attached "
                           "here, so what this one knows of it is outdated; nothing was "
                           "changed: ATTACH it again");
    }
}

} // namespace rawduck
