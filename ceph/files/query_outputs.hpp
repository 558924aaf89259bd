//! Which objects the queries of a connection may remove.
#pragma once

#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/error_data.hpp"
#include "duckdb/common/file_opener.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace rawduck_ceph {

//! DuckDB removes what OVERWRITE replaces and what a failed COPY leaves by one call, which has only names. But a COPY
//! may have failed because another writer has published an object of the name meanwhile, which must stay. So this
//! remembers what the last query of a connection has listed, which OVERWRITE does first, and what it has published.
//! Thread-safe. It outlives the query: DuckDB cleans up after a prepared COPY when that runs again.
class QueryOutputs final : public duckdb::ClientContextState {
  public:
    using Opener = duckdb::optional_ptr<duckdb::FileOpener>;

    //! Of the connection that opens files. Null where none does.
    static duckdb::shared_ptr<QueryOutputs> Of(Opener opener);
    //! The same, for a query that lists or writes: what an earlier one has left is forgotten. Null where none runs.
    static duckdb::shared_ptr<QueryOutputs> OfQuery(Opener opener);

    void AddListed(const std::string &path);
    void AddPublished(const std::string &path, std::shared_ptr<RadosPool> pool, const std::string &object,
                      uint64_t version);

    //! Whether the query has listed the object, and has not removed it since.
    bool TakeListed(const std::string &path);
    //! Removes the object if the query has published it and nobody has replaced it since. Throws Error.
    void RemovePublished(const std::string &path);

    void QueryEnd(duckdb::ClientContext &context, duckdb::optional_ptr<duckdb::ErrorData> error) override;

  private:
    struct Published {
        std::shared_ptr<RadosPool> pool;
        std::string object;
        uint64_t version = 0;
    };

    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    duckdb::transaction_t query_ = duckdb::MAXIMUM_QUERY_ID;
    std::unordered_set<std::string> listed_; //!< paths
    std::unordered_map<std::string, Published> published_;
};

} // namespace rawduck_ceph
