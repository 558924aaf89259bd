//! nvme_copy(source, destination): FileCopy as a table function.
#include "extension/sql/copy/file_copy.hpp"
#include "extension/sql/files/kept_volumes.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/row_function.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/parallel/async_result.hpp"

#include <exception>

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;
using duckdb::Value;

struct CopyBindData final : duckdb::TableFunctionData {
    explicit CopyBindData(Arguments arguments) : arguments(std::move(arguments)) {}
    Arguments arguments;
};

struct CopyState final : duckdb::GlobalTableFunctionState {
    explicit CopyState(std::unique_ptr<FileCopy> copy) : copy(std::move(copy)) {}
    std::unique_ptr<FileCopy> copy;
    bool copied = false, done = false;
    std::exception_ptr failure; //!< of a task; thrown by whoever waits for it
};

//! One piece as a task of its own, so that between two
//! pieces DuckDB reports progress and notices an interrupt.
class CopyTask final : public duckdb::AsyncTask {
  public:
    explicit CopyTask(CopyState &state) : state_(state) {}
    // DuckDB takes the query down at once when a task throws, with what waits for the task.
    void Execute() override {
        try {
            state_.copied = !state_.copy->CopyPiece();
        } catch (...) {
            state_.failure = std::current_exception();
        }
    }

  private:
    CopyState &state_;
};

std::vector<Column> CopyColumns() {
    return {{"destination", LogicalType::VARCHAR, "The path"},
            {"bytes", LogicalType::UBIGINT, "Bytes copied"}};
}

duckdb::unique_ptr<duckdb::FunctionData> BindCopy(ClientContext &, duckdb::TableFunctionBindInput &input,
                                                  duckdb::vector<LogicalType> &types,
                                                  duckdb::vector<duckdb::Identifier> &names) {
    for (auto &column : CopyColumns()) {
        names.emplace_back(column.name);
        types.push_back(column.type);
    }
    return duckdb::make_uniq<CopyBindData>(Arguments(input.inputs, input.named_parameters));
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> StartCopy(ClientContext &context,
                                                               duckdb::TableFunctionInitInput &input) {
    auto &arguments = input.bind_data->Cast<CopyBindData>().arguments;
    auto copy =
        std::make_unique<FileCopy>(duckdb::FileSystem::GetFileSystem(context), arguments.Text(0, "source"),
                                   arguments.Text(1, "destination"), arguments.NamedFlag("overwrite"));
    KeepVolumeOf(context, arguments.Text(1, "destination"));
    return duckdb::make_uniq<CopyState>(std::move(copy));
}

void ContinueCopy(ClientContext &, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
    auto &state = input.global_state->Cast<CopyState>();
    if (state.done) {
        return;
    }
    if (state.failure) {
        std::rethrow_exception(state.failure);
    }
    if (!state.copied && input.results_execution_mode == duckdb::AsyncResultsExecutionMode::TASK_EXECUTOR) {
        duckdb::vector<duckdb::unique_ptr<duckdb::AsyncTask>> tasks;
        tasks.push_back(duckdb::make_uniq<CopyTask>(state));
        input.async_result = duckdb::AsyncResult(std::move(tasks));
        return;
    }
    while (!state.copied) {
        state.copied = !state.copy->CopyPiece();
    }
    state.copy->Finish();
    state.done = true;
    auto &arguments = input.bind_data->Cast<CopyBindData>().arguments;
    output.data[0].Append(Value(arguments.Text(1, "destination")));
    output.data[1].Append(Value::UBIGINT(state.copy->Size()));
}

double CopyProgress(ClientContext &, const duckdb::FunctionData *,
                    const duckdb::GlobalTableFunctionState *state) {
    return state ? state->Cast<CopyState>().copy->ProgressPercent() : 0;
}

} // namespace

void RegisterCopyFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("source", LogicalType::VARCHAR);
    signature.AddParameter("destination", LogicalType::VARCHAR);
    signature.AddKeywordOnly("overwrite", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    duckdb::TableFunction function("nvme_copy", signature, ContinueCopy, BindCopy, StartCopy);
    function.table_scan_progress = CopyProgress;
    RegisterDescribed(
        loader, std::move(function),
        "Copies a file between volumes and ordinary paths, in either direction. It appears under its "
        "name only when it is complete and durable. overwrite: replace what has that name.",
        "CALL nvme_copy('sales.duckdb', 'nvme:///dev/nvme0n1/sales.duckdb')", CopyColumns());
}

} // namespace rawduck
