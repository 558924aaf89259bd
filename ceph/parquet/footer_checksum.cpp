#include "ceph/parquet/footer_checksum.hpp"

#include "ceph/protocol/bytes.hpp"
#include "common/crc32c.hpp"

namespace rawduck_ceph {

uint32_t FooterCrc(const char *footer, size_t length) {
    return rawduck::Crc32c(0, footer, length);
}

bool FindMetadata(const char *object, uint64_t size, uint64_t &metadata_bytes) {
    if (size < PARQUET_TAIL_BYTES + sizeof(PARQUET_MAGIC) ||
        std::memcmp(object + size - sizeof(PARQUET_MAGIC), PARQUET_MAGIC, sizeof(PARQUET_MAGIC)) != 0) {
        return false;
    }
    uint32_t length;
    std::memcpy(&length, object + size - PARQUET_TAIL_BYTES, sizeof(length));
    metadata_bytes = length;
    return metadata_bytes + PARQUET_TAIL_BYTES <= size;
}

std::string FooterAttributeOf(const char *object, uint64_t size) {
    uint64_t metadata_bytes;
    if (!FindMetadata(object, size, metadata_bytes)) {
        return {};
    }
    const uint64_t footer_bytes = metadata_bytes + PARQUET_TAIL_BYTES;
    ByteWriter writer;
    writer.Integer(FooterCrc(object + size - footer_bytes, footer_bytes));
    writer.Integer(size);
    return writer.Take();
}

bool ReadFooterAttribute(const std::string &value, uint64_t size, uint32_t &crc) {
    if (value.size() != sizeof(uint32_t) + sizeof(uint64_t)) {
        return false;
    }
    ByteReader reader(value.data(), value.size());
    crc = reader.Integer<uint32_t>();
    return reader.Integer<uint64_t>() == size;
}

} // namespace rawduck_ceph
