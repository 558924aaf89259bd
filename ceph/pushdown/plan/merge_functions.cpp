#include "ceph/pushdown/plan/merge_functions.hpp"

#include "duckdb/common/types/hugeint.hpp"

#include <cmath>
#include <type_traits>

namespace rawduck_ceph {

namespace {

using duckdb::hugeint_t;
using duckdb::LogicalType;

struct MergeOperation {
    template <class STATE> static void Initialize(STATE &state) { state = STATE(); }
    static bool IgnoreNull() { return true; }
};

struct CountState {
    int64_t count;
};

struct MergeCountsOperation : MergeOperation {
    template <class INPUT, class STATE, class OP>
    static void Operation(STATE &state, const INPUT &input, duckdb::AggregateUnaryInput &) {
        state.count += input;
    }
    template <class INPUT, class STATE, class OP>
    static void ConstantOperation(STATE &state, const INPUT &input, duckdb::AggregateUnaryInput &,
                                  duckdb::idx_t count) {
        state.count += input * static_cast<int64_t>(count);
    }
    template <class STATE, class OP>
    static void Combine(const STATE &source, STATE &target, duckdb::AggregateInputData &) {
        target.count += source.count;
    }
    template <class RESULT, class STATE>
    static void Finalize(STATE &state, RESULT &target, duckdb::AggregateFinalizeData &) {
        target = state.count;
    }
};

template <class SUM> struct AverageState {
    SUM sum;
    int64_t count;
};

//! Fails where a HUGEINT overflows, as DuckDB's avg does: its += wraps around.
template <class SUM> void AddTo(SUM &total, const SUM &sum) {
    if constexpr (std::is_same_v<SUM, hugeint_t>) {
        total = duckdb::Hugeint::Add(total, sum);
    } else {
        total += sum;
    }
}

//! FLOAT: the type of the division.
template <class SUM, class FLOAT> struct MergeAveragesOperation : MergeOperation {
    template <class A, class B, class STATE, class OP>
    static void Operation(STATE &state, const A &sum, const B &count, duckdb::AggregateBinaryInput &) {
        AddTo(state.sum, sum);
        state.count += count;
    }
    template <class STATE, class OP>
    static void Combine(const STATE &source, STATE &target, duckdb::AggregateInputData &) {
        AddTo(target.sum, source.sum);
        target.count += source.count;
    }
    template <class RESULT, class STATE>
    static void Finalize(STATE &state, RESULT &target, duckdb::AggregateFinalizeData &data) {
        if (state.count == 0) {
            data.ReturnNull();
            return;
        }
        FLOAT divisor = static_cast<FLOAT>(state.count);
        if constexpr (std::is_same_v<SUM, double>) {
            target = state.sum / divisor;
        } else {
            const auto &type = data.input.function.GetArguments()[0];
            const bool decimal = type.id() == duckdb::LogicalTypeId::DECIMAL;
            divisor *= decimal ? std::pow(10.0, duckdb::DecimalType::GetScale(type)) : 1.0;
            target = static_cast<double>(duckdb::Hugeint::Cast<FLOAT>(state.sum) / divisor);
        }
    }
};

template <class SUM, class FLOAT> duckdb::AggregateFunction Averages(const LogicalType &sum_type) {
    return duckdb::AggregateFunction::BinaryAggregate<AverageState<SUM>, SUM, int64_t, double,
                                                      MergeAveragesOperation<SUM, FLOAT>>(
        sum_type, LogicalType::BIGINT, LogicalType::DOUBLE);
}

} // namespace

duckdb::AggregateFunction MergeCounts() {
    auto function =
        duckdb::AggregateFunction::UnaryAggregate<CountState, int64_t, int64_t, MergeCountsOperation>(
            LogicalType::BIGINT, LogicalType::BIGINT);
    function.name = duckdb::Identifier("rados_merge_count");
    return function;
}

duckdb::AggregateFunction MergeAverages(const LogicalType &sum_type, bool narrow) {
    auto function = sum_type.id() == duckdb::LogicalTypeId::DOUBLE ? Averages<double, double>(sum_type)
                    : narrow                                       ? Averages<hugeint_t, double>(sum_type)
                             : Averages<hugeint_t, long double>(sum_type);
    function.name = duckdb::Identifier("rados_merge_avg");
    return function;
}

} // namespace rawduck_ceph
