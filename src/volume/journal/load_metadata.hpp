//! Mounts the metadata of a volume of format 2: the trees of the last checkpoint, with the log applied to them in
//! memory. What it reads does not depend on how many files there are, but on what the log says of them.
#pragma once

#include "volume/journal/journal_image.hpp"
#include "volume/journal/metadata_trees.hpp"

#include <memory>

namespace rawduck {

struct LoadedMetadata {
    JournalImage image; //!< without the records, which are applied
    std::unique_ptr<MetadataTrees> trees;
    std::unique_ptr<FreeSpace> space;
    std::vector<Extent> freed; //!< what the log has freed since the checkpoint
    //! What is wrong with the checkpoint, when all of it was to be checked.
    std::vector<std::string> problems;
};

enum class CheckPages { NO, ALL };

//! Throws Error: as ReadJournal, and CORRUPT or IO for pages that cannot be read; with CheckPages::ALL these are
//! problems. `cache_bytes`: of pages in memory.
LoadedMetadata LoadMetadata(BlockIo &io, uint64_t cache_bytes, CheckPages check = CheckPages::NO);
//! The same, with superblocks and log that were read already. `visit_file`: what all pages are checked for is given the
//! files of the checkpoint, as by CatalogTree::FindProblems, before the log is applied.
LoadedMetadata LoadMetadata(BlockIo &io, const JournalImage &image, uint64_t cache_bytes, CheckPages check,
                            const CatalogTree::VisitFile &visit_file = nullptr);

//! The number that the mount of this image has, once it writes. Nobody has used it: both superblocks count a mount
//! before it writes anything else.
uint64_t NextMount(const JournalImage &image);

} // namespace rawduck
