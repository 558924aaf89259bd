//! The checksum that Parquet's footer does not have: a writer of ours records it in an extended attribute of
//! the object, the object class compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rawduck_ceph {

constexpr const char *FOOTER_ATTRIBUTE = "rawduck.footer_crc32c";

//! Behind a Parquet file's metadata: its length (4 bytes, little-endian) and the magic.
constexpr uint64_t PARQUET_TAIL_BYTES = 8;
constexpr char PARQUET_MAGIC[4] = {'P', 'A', 'R', '1'};

//! CRC32C of `footer`, which is the metadata and the tail.
uint32_t FooterCrc(const char *footer, size_t length);

//! The attribute's value for an object with this content: the checksum and
//! the object's size, so that it does not count for what another program
//! has put into the object's place since. Empty when it is no Parquet file.
std::string FooterAttributeOf(const char *object, uint64_t size);

//! False when the value is not for an object of this size.
bool ReadFooterAttribute(const std::string &value, uint64_t size, uint32_t &crc);

} // namespace rawduck_ceph
