//! What is kept for the duration of one query of a connection.
#pragma once

#include "duckdb/common/constants.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"

#include <memory>
#include <mutex>

namespace rawduck_ceph {

//! A STATE for each query: made at the first call of Of, released by the connection when the query ends.
//! Thread-safe; STATE guards itself.
template <class STATE> class QueryState final : public duckdb::ClientContextState {
  public:
    //! Null outside of a query. `name`: of this STATE among the states of the connection.
    static std::shared_ptr<STATE> Of(duckdb::ClientContext &context, const char *name) {
        if (!context.transaction.HasActiveTransaction() ||
            context.transaction.GetActiveQuery() == duckdb::MAXIMUM_QUERY_ID) {
            return nullptr;
        }
        return context.registered_state->GetOrCreate<QueryState>(name)->Current(
            context.transaction.GetActiveQuery());
    }

    //! Uses `state` for all further queries of a connection, which run on behalf of another one's query.
    static void Share(duckdb::ClientContext &context, const char *name, std::shared_ptr<STATE> state) {
        auto holder = context.registered_state->GetOrCreate<QueryState>(name);
        std::lock_guard<std::mutex> lock(holder->mutex_);
        holder->shared_ = std::move(state);
    }

    void QueryEnd() override {
        std::lock_guard<std::mutex> lock(mutex_);
        state_.reset();
        query_ = duckdb::MAXIMUM_QUERY_ID;
    }

  private:
    std::shared_ptr<STATE> Current(duckdb::transaction_t query) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (shared_) {
            return shared_;
        }
        if (query_ != query || !state_) {
            state_ = std::make_shared<STATE>();
            query_ = query;
        }
        return state_;
    }

    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    duckdb::transaction_t query_ = duckdb::MAXIMUM_QUERY_ID;
    std::shared_ptr<STATE> state_;
    std::shared_ptr<STATE> shared_;
};

} // namespace rawduck_ceph
