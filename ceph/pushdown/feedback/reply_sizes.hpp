//! How large the answers of pushed queries were when they ran before.
#pragma once

#include <cstdint>
#include <string>

namespace rawduck_ceph {

//! Answers that were refused because of their size.
constexpr uint64_t TOO_LARGE_TO_KNOW = UINT64_MAX - 1;

//! What earlier runs of a pushed query taught, by its text. Thread-safe; forgets when it grows too large.
uint64_t LearnedReplyBytes(const std::string &query);
void LearnReplyBytes(const std::string &query, uint64_t bytes_per_object);

} // namespace rawduck_ceph
