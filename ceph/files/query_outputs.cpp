#include "ceph/files/query_outputs.hpp"

namespace rawduck_ceph {

duckdb::shared_ptr<QueryOutputs> QueryOutputs::Of(Opener opener) {
    auto context = duckdb::FileOpener::TryGetClientContext(opener);
    if (!context) {
        return nullptr;
    }
    return context->registered_state->GetOrCreate<QueryOutputs>("rawduck_ceph_outputs");
}

duckdb::shared_ptr<QueryOutputs> QueryOutputs::OfQuery(Opener opener) {
    auto context = duckdb::FileOpener::TryGetClientContext(opener);
    if (!context || !context->transaction.HasActiveTransaction()) {
        return nullptr;
    }
    const duckdb::transaction_t query = context->transaction.GetActiveQuery();
    if (query == duckdb::MAXIMUM_QUERY_ID) {
        return nullptr;
    }
    auto outputs = Of(opener);
    std::unordered_map<std::string, Published> forgotten; // a pool may close its cluster: not under the lock
    std::lock_guard<std::mutex> lock(outputs->mutex_);
    if (outputs->query_ != query) {
        outputs->query_ = query;
        outputs->listed_.clear();
        outputs->published_.swap(forgotten);
    }
    return outputs;
}

void QueryOutputs::AddListed(const std::string &path) {
    std::lock_guard<std::mutex> lock(mutex_);
    listed_.insert(path);
}

void QueryOutputs::AddPublished(const std::string &path, std::shared_ptr<RadosPool> pool,
                                const std::string &object, uint64_t version) {
    std::lock_guard<std::mutex> lock(mutex_);
    published_[path] = Published{std::move(pool), object, version};
}

bool QueryOutputs::TakeListed(const std::string &path) {
    std::lock_guard<std::mutex> lock(mutex_);
    return listed_.erase(path) > 0;
}

void QueryOutputs::RemovePublished(const std::string &path) {
    Published published;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = published_.find(path);
        if (found == published_.end()) {
            return;
        }
        published = std::move(found->second);
        published_.erase(found);
    }
    published.pool->RemoveVersion(published.object, published.version);
}

void QueryOutputs::QueryEnd(duckdb::ClientContext &, duckdb::optional_ptr<duckdb::ErrorData> error) {
    std::unordered_map<std::string, Published> forgotten;
    std::lock_guard<std::mutex> lock(mutex_);
    listed_.clear();
    if (!error) {
        published_.swap(forgotten);
    }
}

} // namespace rawduck_ceph
