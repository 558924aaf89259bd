#include "ceph/files/query_listings.hpp"

#include "ceph/files/query_state.hpp"

#include <algorithm>
#include <map>

namespace rawduck_ceph {
namespace {

//! Larger pools are not cached.
constexpr size_t CACHED_NAMES_MAX = 100000;

//! Of one query.
class QueryListings {
  public:
    using Names = std::shared_ptr<const std::vector<std::string>>;

    //! Null when there are too many. Lists the pool under the lock: other threads of the query
    //! wait for the result.
    Names AllNames(const std::shared_ptr<RadosPool> &pool) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = listings_.find(pool);
        if (found == listings_.end()) {
            auto names = std::make_shared<const std::vector<std::string>>(pool->List("", CACHED_NAMES_MAX));
            found = listings_.emplace(pool, names->size() < CACHED_NAMES_MAX ? names : nullptr).first;
        }
        return found->second;
    }

  private:
    std::mutex mutex_; //!< guards listings_; held while listing a pool, which takes locks of rados/
    std::map<std::shared_ptr<RadosPool>, Names> listings_;
};

} // namespace

std::vector<std::string> NamesForQuery(const std::shared_ptr<RadosPool> &pool, const std::string &prefix,
                                       duckdb::optional_ptr<duckdb::FileOpener> opener) {
    auto context = duckdb::FileOpener::TryGetClientContext(opener);
    auto listings = context ? QueryState<QueryListings>::Of(*context, "rawduck_ceph_listings") : nullptr;
    if (listings) {
        if (auto all = listings->AllNames(pool)) {
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
