//! From a query that could be pushed to the decision, and to the bind data of the scan that pushes it.
#pragma once

#include "ceph/pushdown/decision/object_metadata.hpp"
#include "ceph/pushdown/decision/offload_decision.hpp"
#include "ceph/pushdown/plan/pushed_query.hpp"
#include "ceph/pushdown/scan/offload_scan.hpp"

namespace rawduck_ceph {

//! A scan of rados:// objects and what could be pushed of the query over it.
struct OffloadCandidate {
    duckdb::LogicalGet &get;
    const std::vector<CallTarget> &targets;
    const PushedQuery &query;
    uint64_t rows_out; //!< of all replies together, as DuckDB estimates it
    bool rows_known;   //!< false: DuckDB's estimate is unreliable
    bool any_order;    //!< nothing above the scan depends on the order of its rows
};

//! Of one optimizer run.
class OffloadPlanner {
  public:
    explicit OffloadPlanner(duckdb::ClientContext &context);

    //! The value of rados_offload.
    const std::string &Mode() const { return mode_; }

    //! Decides about a candidate and logs the decision. Null: it is read, and EXPLAIN says why. Throws
    //! NotPushable where no class can be called, and Error where the cluster cannot be reached.
    duckdb::unique_ptr<OffloadBindData> Plan(const OffloadCandidate &candidate);

  private:
    //! Sends requests: for the metadata of the first object, and for a trial of the link
    //! where its speed matters.
    DecisionInputs FetchInputs(const OffloadCandidate &candidate, const std::string &reply_key);
    //! An aggregate and the scan below it are two candidates, with one fetch.
    const ObjectMetadata &MetadataOf(const OffloadCandidate &candidate);
    //! For every value of rados_offload but 'auto'. `pool`: of the first object.
    Decision UnconditionalDecision(RadosPool &pool) const;
    CallLimits LimitsFor(const OffloadCandidate &candidate, const Decision &decision) const;
    duckdb::unique_ptr<OffloadBindData> Bind(const OffloadCandidate &candidate,
                                             const Decision &decision) const;

    duckdb::ClientContext &context_;
    const std::string mode_;
    const std::shared_ptr<ObjectPins> pins_;
    const duckdb::LogicalGet *fetched_for_ = nullptr; //!< the scan that metadata_ is of
    ObjectMetadata metadata_;
};

} // namespace rawduck_ceph
