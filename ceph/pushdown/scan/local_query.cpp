#include "ceph/pushdown/scan/local_query.hpp"

#include "ceph/files/query_interrupt.hpp"
#include "ceph/files/query_pins.hpp"
#include "ceph/settings/rados_settings.hpp"

#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/parser/statement/logical_plan_statement.hpp"

namespace rawduck_ceph {

namespace {

//! As SET SESSION does, but also where the configuration is locked: the settings are those of a connection of our own.
void SetForSession(duckdb::ClientContext &context, const char *name, duckdb::Value value) {
    duckdb::optional_ptr<const duckdb::ConfigurationOption> option;
    const auto &config = duckdb::DBConfig::GetConfig(context);
    const auto setting = config.TryGetSettingIndex(duckdb::Identifier(name), option);
    context.config.user_settings.SetUserSetting(setting.GetIndex(), std::move(value));
}

} // namespace

LocalQuery::LocalQuery(duckdb::ClientContext &context, const OffloadBindData &data, const CallTarget &target,
                       duckdb::optional_ptr<const duckdb::TableFilterSet> join_filters)
    : path_(target.path), connection_(*context.db) {
    duckdb::ClientContext &own = *connection_.context;
    own.config = context.config; // settings of the session may change how the object is read
    own.config.enable_profiler = false;
    own.config.enable_progress_bar = false;
    UsePins(own, data.pins);
    RunsFor(own, context);
    SetForSession(own, RADOS_OFFLOAD, duckdb::Value(OFFLOAD_NEVER));
    // The plan was optimized before it was pushed.
    SetForSession(own, "enable_optimizer", duckdb::Value::BOOLEAN(false));
    auto plan = KeepRows(data.plain->PlanFor(own, path_, data.types, join_filters), rows_);
    auto submitted = connection_.Submit(duckdb::make_uniq<duckdb::LogicalPlanStatement>(std::move(plan)));
    if (submitted->HasError()) {
        ThrowWithPath(submitted->GetErrorObject());
    }
    stream_ = std::make_unique<duckdb::QueryResultStream<>>(std::move(submitted));
}

bool LocalQuery::Next(duckdb::DataChunk &chunk) {
    using State = duckdb::QueryResultState;
    while (!rows_->Take(chunk)) {
        duckdb::unique_ptr<duckdb::DataChunk> buffered;
        State state = stream_->TryFetch(buffered);
        if (buffered) {
            continue;
        }
        if (state != State::FINISHED && state != State::EXECUTION_ERROR) {
            if (InterruptScope::IsInterrupted()) {
                connection_.Interrupt(); // the tasks on other threads end as well
                throw duckdb::InterruptException();
            }
            state = stream_->ExecuteTask();
            if (state == State::BLOCKED || state == State::NO_TASKS_AVAILABLE) {
                stream_->WaitForTask();
            }
            continue; // what has finished may have rows buffered
        }
        // The last rows may have come since they were asked for.
        if (rows_->Take(chunk)) {
            return true;
        }
        if (stream_->HasError()) {
            ThrowWithPath(stream_->GetErrorObject());
        }
        return false;
    }
    return true;
}

void LocalQuery::ThrowWithPath(const duckdb::ErrorData &error) const {
    const bool named = error.RawMessage().find(path_) != std::string::npos;
    error.Throw(named || error.Type() == duckdb::ExceptionType::INTERRUPT ? "" : path_ + ": ");
}

} // namespace rawduck_ceph
