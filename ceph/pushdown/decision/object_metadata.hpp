//! What a decision needs from the cluster: the metadata of a scan's first object, and the speed of the link.
//! All network requests of planning are here, in TryClass (class_trial.hpp) and in TargetsOf
//! (pushdown/plan/parquet_scan.hpp).
#pragma once

#include "ceph/parquet/parquet_summary.hpp"
#include "ceph/pushdown/scan/object_calls.hpp"

#include <memory>

namespace rawduck_ceph {

struct ObjectMetadata {
    uint64_t bytes = 0; //!< 0 where there is no such object
    uint64_t version = 0;
    //! Null where the object is no Parquet file that we understand.
    std::shared_ptr<const ParquetSummary> summary;
};

//! Of the version that `pins` has, which the query has opened to bind its plan. Sends no request where the end
//! of this version was read a moment ago and its summary is known. Throws Error, also when the object was
//! replaced.
ObjectMetadata FetchMetadata(const CallTarget &object, ObjectPins &pins);

//! Times a read of up to 256 KiB, discards what was read, and records the speed of reads in the pool's
//! feedback, where it holds until enough was read to measure. Throws Error.
void MeasureLink(const CallTarget &object, const ObjectMetadata &metadata);

} // namespace rawduck_ceph
