//! EXPORT DATABASE 'rados://<pool>/<prefix>': DuckDB writes schema.sql and load.sql without closing them, as a COPY
//! that fails leaves its files, which must not become objects. So what writes them is told apart here.
#include "ceph/sql/functions.hpp"

#include "ceph/files/rados_file.hpp"
#include "ceph/rados/connection/rados_path.hpp"

#include "duckdb/execution/operator/persistent/physical_export.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/planner/operator/logical_export.hpp"
#include "duckdb/planner/operator/logical_extension_operator.hpp"
#include "duckdb/planner/planner_extension.hpp"

namespace rawduck_ceph {
namespace {

//! As a source it only writes the two files; the COPYs of the tables are other operators.
class PhysicalRadosExport final : public duckdb::PhysicalExport {
  public:
    using PhysicalExport::PhysicalExport;

    duckdb::SourceResultType GetDataInternal(duckdb::ExecutionContext &context, duckdb::DataChunk &chunk,
                                             duckdb::OperatorSourceInput &input) const override {
        const PublishWritesScope scope;
        return PhysicalExport::GetDataInternal(context, chunk, input);
    }
};

//! Takes the place of DuckDB's operator in the plan.
struct LogicalRadosExport final : duckdb::LogicalExtensionOperator {
    explicit LogicalRadosExport(duckdb::LogicalExport &original)
        : function_(std::move(original.function)), info_(std::move(original.copy_info)),
          tables_(std::move(original.exported_tables)) {
        children = std::move(original.children);
    }

    duckdb::PhysicalOperator &CreatePlan(duckdb::ClientContext &,
                                         duckdb::PhysicalPlanGenerator &planner) override {
        auto &plan = planner.Make<PhysicalRadosExport>(types, std::move(function_), std::move(info_),
                                                       estimated_cardinality, std::move(tables_));
        for (auto &child : children) {
            plan.children.push_back(planner.CreatePlan(*child));
        }
        return plan;
    }
    bool SupportSerialization() const override { return false; }

  protected:
    void ResolveTypes() override { types.emplace_back(duckdb::LogicalType::BOOLEAN); }

  private:
    duckdb::CopyFunction function_;
    duckdb::unique_ptr<duckdb::CopyInfo> info_;
    duckdb::unique_ptr<duckdb::BoundExportData> tables_;
};

void ReplaceExport(duckdb::unique_ptr<duckdb::LogicalOperator> &plan) {
    using duckdb::LogicalOperatorType;
    if (plan->type == LogicalOperatorType::LOGICAL_EXPLAIN ||
        plan->type == LogicalOperatorType::LOGICAL_PREPARE) {
        for (auto &child : plan->children) {
            ReplaceExport(child);
        }
    }
    if (plan->type != LogicalOperatorType::LOGICAL_EXPORT) {
        return;
    }
    auto &original = plan->Cast<duckdb::LogicalExport>();
    if (IsRadosPath(original.copy_info->file_path)) {
        plan = duckdb::make_uniq<LogicalRadosExport>(original);
    }
}

void AfterBinding(duckdb::PlannerExtensionInput &, duckdb::BoundStatement &statement) {
    if (statement.plan) {
        ReplaceExport(statement.plan);
    }
}

} // namespace

void RegisterRadosExport(duckdb::ExtensionLoader &loader) {
    // Not an extension of the optimizer, which does not run where it is disabled.
    duckdb::PlannerExtension extension;
    extension.post_bind_function = AfterBinding;
    duckdb::PlannerExtension::Register(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()), extension);
}

} // namespace rawduck_ceph
