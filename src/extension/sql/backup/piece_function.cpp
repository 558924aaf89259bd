#include "extension/sql/backup/piece_function.hpp"

#include "extension/file_systems/errors.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/parallel/async_result.hpp"

#include <exception>

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;

//! Of the size of those of nvme_copy.
constexpr int PIECES_OF_TASK = 8;

struct Info final : duckdb::TableFunctionInfo {
    explicit Info(PieceFunction function) : function(std::move(function)) {}
    PieceFunction function;
};

struct BindData final : duckdb::TableFunctionData {
    BindData(const PieceFunction &function, Arguments arguments)
        : function(function), arguments(std::move(arguments)) {}
    const PieceFunction &function; //!< lives in the catalog
    Arguments arguments;
};

struct State final : duckdb::GlobalTableFunctionState {
    std::unique_ptr<PieceWork> work;
    bool worked = false, done = false;
    std::exception_ptr failure; //!< of a task; thrown by whoever waits for it

    void DoPieces() {
        Translated([&] {
            for (int i = 0; i < PIECES_OF_TASK && !worked; i++) {
                worked = !work->DoPiece();
            }
        });
    }
};

class Task final : public duckdb::AsyncTask {
  public:
    explicit Task(State &state) : state_(state) {}
    // DuckDB takes the query down at once when a task throws, with what waits for the task.
    void Execute() override {
        try {
            state_.DoPieces();
        } catch (...) {
            state_.failure = std::current_exception();
        }
    }

  private:
    State &state_;
};

duckdb::unique_ptr<duckdb::FunctionData> Bind(ClientContext &, duckdb::TableFunctionBindInput &input,
                                              duckdb::vector<LogicalType> &types,
                                              duckdb::vector<duckdb::Identifier> &names) {
    auto &function = input.info->Cast<Info>().function;
    for (auto &column : function.columns) {
        names.emplace_back(column.name);
        types.push_back(column.type);
    }
    return duckdb::make_uniq<BindData>(function, Arguments(input.inputs, input.named_parameters));
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> Start(ClientContext &context,
                                                           duckdb::TableFunctionInitInput &input) {
    auto &bound = input.bind_data->Cast<BindData>();
    auto state = duckdb::make_uniq<State>();
    state->work = Translated([&] { return bound.function.begin(context, bound.arguments); });
    return std::move(state);
}

void Continue(ClientContext &, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
    auto &state = input.global_state->Cast<State>();
    if (state.done) {
        return;
    }
    if (state.failure) {
        std::rethrow_exception(state.failure);
    }
    if (!state.worked && input.results_execution_mode == duckdb::AsyncResultsExecutionMode::TASK_EXECUTOR) {
        duckdb::vector<duckdb::unique_ptr<duckdb::AsyncTask>> tasks;
        tasks.push_back(duckdb::make_uniq<Task>(state));
        input.async_result = duckdb::AsyncResult(std::move(tasks));
        return;
    }
    while (!state.worked) {
        state.DoPieces();
    }
    const auto row = state.work->Row();
    for (size_t column = 0; column < row.size(); column++) {
        output.data[column].Append(row[column]);
    }
    state.done = true;
    state.work->Release(); // the result of the statement may be kept for long
}

double Progress(ClientContext &, const duckdb::FunctionData *,
                const duckdb::GlobalTableFunctionState *state) {
    const PieceWork *work = state ? state->Cast<State>().work.get() : nullptr;
    return work ? work->ProgressPercent() : 0;
}

} // namespace

void RegisterPieceFunction(duckdb::ExtensionLoader &loader, PieceFunction function) {
    duckdb::TableFunction table_function(duckdb::Identifier(function.name), function.signature, Continue,
                                         Bind, Start);
    table_function.table_scan_progress = Progress;
    const char *description = function.description, *example = function.example;
    const std::vector<Column> columns = function.columns;
    table_function.function_info = duckdb::make_shared_ptr<Info>(std::move(function));
    RegisterDescribed(loader, std::move(table_function), description, example, columns);
}

} // namespace rawduck
