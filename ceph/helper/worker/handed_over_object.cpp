#include "ceph/helper/worker/handed_over_object.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace rawduck_ceph {

HandedOverObject::HandedOverObject(const JobPacket &job, std::vector<OwnedFd> files) : job_(job) {
    if (job.piece_count == 0 || job.piece_count > PIECES_MAX || files.size() != job.piece_count) {
        throw std::runtime_error("a job has another number of files than it says");
    }
    for (size_t i = 0; i < files.size(); i++) {
        files_.push_back(std::make_unique<MappedFile>(std::move(files[i]), job.file_bytes[i]));
        AddParts(*files_.back(), job.range_counts[i]);
    }
}

void HandedOverObject::AddParts(const MappedFile &file, uint32_t range_count) {
    const uint64_t table_bytes = uint64_t{range_count} * sizeof(ByteRange);
    if (job_.request_bytes + table_bytes > file.Bytes()) {
        throw std::runtime_error("a job's file is shorter than its request and its ranges");
    }
    const uint64_t table = file.Bytes() - table_bytes;
    uint64_t position = job_.request_bytes;
    for (uint32_t i = 0; i < range_count; i++) {
        ByteRange range;
        std::memcpy(&range, file.Data() + table + i * sizeof(range), sizeof(range));
        const uint64_t expected = parts_.empty() ? 0 : parts_.back().offset + parts_.back().bytes;
        if (range.offset < expected || range.bytes > table - position || range.offset > job_.object_bytes ||
            range.bytes > job_.object_bytes - range.offset) {
            throw std::runtime_error("a job's ranges do not fit its object");
        }
        parts_.push_back({range.offset, range.bytes, file.Data() + position});
        position += range.bytes;
    }
}

void HandedOverObject::Read(uint64_t offset, size_t length, char *buffer) {
    auto part = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                 [](uint64_t value, const Part &one) { return value < one.offset; });
    part -= part == parts_.begin() ? 0 : 1;
    while (length > 0) {
        if (part == parts_.end() || offset < part->offset || offset >= part->offset + part->bytes) {
            throw std::runtime_error("byte " + std::to_string(offset) +
                                     " of the object was not handed over: DuckDB reads more of the object "
                                     "than the request's columns");
        }
        const uint64_t skipped = offset - part->offset;
        const size_t bytes = std::min<uint64_t>(length, part->bytes - skipped);
        std::memcpy(buffer, part->data + skipped, bytes);
        buffer += bytes;
        offset += bytes;
        length -= bytes;
        ++part;
    }
}

} // namespace rawduck_ceph
