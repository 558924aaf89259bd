#include "ceph/pushdown/feedback/pushdown_feedback.hpp"

#include "ceph/rados/pool/rados_pool.hpp"

namespace rawduck_ceph {

PushdownFeedback &PushdownFeedback::OfProcess() {
    static auto &feedback = *new PushdownFeedback;
    return feedback;
}

std::shared_ptr<PoolRates> PushdownFeedback::RatesOf(const std::string &cluster, const std::string &pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto &rates = rates_[{cluster, pool}];
    if (!rates) {
        rates = std::make_shared<PoolRates>();
    }
    return rates;
}

std::shared_ptr<PoolFeedback> PushdownFeedback::Of(const std::shared_ptr<RadosPool> &pool) {
    auto rates = RatesOf(pool->ClusterId(), pool->Name());
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = pools_.find(pool);
    if (found != pools_.end()) {
        return found->second;
    }
    for (auto it = pools_.begin(); it != pools_.end();) {
        it = it->first.expired() ? pools_.erase(it) : std::next(it);
    }
    auto feedback = std::make_shared<PoolFeedback>(std::move(rates));
    pools_.emplace(pool, feedback);
    return feedback;
}

} // namespace rawduck_ceph
