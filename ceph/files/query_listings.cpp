#include "ceph/files/query_listings.hpp"

#include "duckdb/common/constants.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <algorithm>
#include <map>
#include <mutex>

namespace rawduck_ceph {
namespace {

//! Larger pools are not cached.
constexpr size_t CACHED_NAMES_MAX = 100000;

//! Of one connection.
class QueryListings final : public duckdb::ClientContextState {
  public:
    using Names = std::shared_ptr<const std::vector<std::string>>;

    //! Null when there are too many. Lists the pool under the lock: other threads of the query
    //! wait for the result.
    Names AllNames(const std::shared_ptr<RadosPool> &pool, duckdb::transaction_t query) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (query_ != query) {
            listings_.clear();
            query_ = query;
        }
        auto found = listings_.find(pool);
        if (found == listings_.end()) {
            auto names = std::make_shared<const std::vector<std::string>>(pool->List("", CACHED_NAMES_MAX));
            found = listings_.emplace(pool, names->size() < CACHED_NAMES_MAX ? names : nullptr).first;
        }
        return found->second;
    }
    void QueryEnd() override {
        std::lock_guard<std::mutex> lock(mutex_);
        listings_.clear();
        query_ = duckdb::MAXIMUM_QUERY_ID;
    }

  private:
    std::mutex mutex_; //!< guards what follows; held while listing a pool, which takes locks of rados/
    duckdb::transaction_t query_ = duckdb::MAXIMUM_QUERY_ID;
    std::map<std::shared_ptr<RadosPool>, Names> listings_;
};

} // namespace

std::vector<std::string> NamesForQuery(const std::shared_ptr<RadosPool> &pool, const std::string &prefix,
                                       duckdb::optional_ptr<duckdb::FileOpener> opener) {
    auto context = duckdb::FileOpener::TryGetClientContext(opener);
    if (context && context->transaction.HasActiveTransaction() &&
        context->transaction.GetActiveQuery() != duckdb::MAXIMUM_QUERY_ID) {
        auto listings = context->registered_state->GetOrCreate<QueryListings>("rawduck_ceph_listings");
        if (auto all = listings->AllNames(pool, context->transaction.GetActiveQuery())) {
            auto first = std::lower_bound(all->begin(), all->end(), prefix);
            auto last = first;
            while (last != all->end() && last->compare(0, prefix.size(), prefix) == 0) {
                ++last;
            }
            return std::vector<std::string>(first, last);
        }
    }
    return pool->List(prefix);
}

} // namespace rawduck_ceph
