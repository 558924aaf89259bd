#include "ceph/pushdown/scan/kept_rows.hpp"

#include "duckdb/common/allocator.hpp"
#include "duckdb/execution/physical_operator.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/planner/operator/logical_extension_operator.hpp"

namespace rawduck_ceph {

namespace {

constexpr const char *NAME = "RADOS_KEPT_ROWS";

//! Not parallel: the rows keep their order, and an error comes behind the rows that precede it.
class PhysicalKeepRows final : public duckdb::PhysicalOperator {
  public:
    PhysicalKeepRows(duckdb::PhysicalPlan &plan, duckdb::vector<duckdb::LogicalType> row_types,
                     duckdb::idx_t row_count, std::shared_ptr<KeptRows> rows)
        : PhysicalOperator(plan, duckdb::PhysicalOperatorType::EXTENSION, std::move(row_types), row_count),
          rows_(std::move(rows)) {}

    duckdb::OperatorResultType Execute(duckdb::ExecutionContext &, duckdb::DataChunk &input,
                                       duckdb::DataChunk &output, duckdb::GlobalOperatorState &,
                                       duckdb::OperatorState &) const override {
        rows_->Put(input);
        output.Reference(input);
        return duckdb::OperatorResultType::NEED_MORE_INPUT;
    }

    std::string GetName() const override { return NAME; }

  private:
    const std::shared_ptr<KeptRows> rows_;
};

class LogicalKeepRows final : public duckdb::LogicalExtensionOperator {
  public:
    explicit LogicalKeepRows(std::shared_ptr<KeptRows> rows) : rows_(std::move(rows)) {}

    duckdb::PhysicalOperator &CreatePlan(duckdb::ClientContext &,
                                         duckdb::PhysicalPlanGenerator &planner) override {
        auto &child = planner.CreatePlan(*children[0]);
        auto &plan = planner.Make<PhysicalKeepRows>(types, child.estimated_cardinality, rows_);
        plan.children.push_back(child);
        return plan;
    }

    duckdb::vector<duckdb::ColumnBinding> GetColumnBindings() override {
        return children[0]->GetColumnBindings();
    }

    std::string GetExtensionName() const override { return NAME; }

  protected:
    void ResolveTypes() override { types = children[0]->types; }

  private:
    const std::shared_ptr<KeptRows> rows_;
};

} // namespace

void KeptRows::Put(duckdb::DataChunk &rows) {
    auto copy = duckdb::make_uniq<duckdb::DataChunk>();
    copy->Initialize(duckdb::Allocator::DefaultAllocator(), rows.GetTypes(), rows.size());
    rows.Copy(*copy, 0);
    std::lock_guard<std::mutex> lock(mutex_);
    chunks_.push_back(std::move(copy));
}

bool KeptRows::Take(duckdb::DataChunk &rows) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (chunks_.empty()) {
        return false;
    }
    rows.Destroy();
    rows.Move(*chunks_.front());
    chunks_.pop_front();
    return true;
}

duckdb::unique_ptr<duckdb::LogicalOperator> KeepRows(duckdb::unique_ptr<duckdb::LogicalOperator> plan,
                                                     std::shared_ptr<KeptRows> rows) {
    auto keeping = duckdb::make_uniq<LogicalKeepRows>(std::move(rows));
    keeping->children.push_back(std::move(plan));
    keeping->ResolveOperatorTypes();
    return std::move(keeping);
}

} // namespace rawduck_ceph
