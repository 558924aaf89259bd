#include "gpu/exports/describe.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rawduck::gpu {
namespace {

std::string Quoted(const std::string &text) {
    std::string quoted = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            quoted += '\\';
            quoted += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(letter));
            quoted += escape;
        } else {
            quoted += letter;
        }
    }
    return quoted + '"';
}

//! To a microsecond, with a point whatever the locale of the process has.
std::string Milliseconds(double milliseconds) {
    const auto microseconds = static_cast<uint64_t>(std::llround(std::max(milliseconds, 0.0) * 1000));
    const std::string rest = std::to_string(microseconds % 1000);
    return std::to_string(microseconds / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

std::string DescribeColumns(const Batch &batch) {
    std::string text;
    for (size_t i = 0; i < batch.columns.size(); i++) {
        const OutputColumn &output = (*batch.layout)[i];
        text += (i ? "," : "") + std::string("{\"name\":") + Quoted(output.name) +
                ",\"format\":" + Quoted(output.arrow_format) +
                ",\"nulls\":" + std::to_string(batch.columns[i].null_count) + "}";
    }
    return text;
}

const char *RouteOf(const BatchReport &report, const RouteTaken &taken) {
    return report.is_query ? "query" : taken.reason.empty() ? "gpu" : "duckdb";
}

std::string DescribeRoutes(const Batch &batch) {
    std::string text;
    for (const RouteTaken &taken : batch.report.routes) {
        text += (text.empty() ? "" : ",") + std::string("{\"row_group\":") +
                (taken.row_group < 0 ? "null" : std::to_string(taken.row_group)) +
                ",\"column\":" + Quoted((*batch.layout)[taken.column].name) +
                ",\"rows\":" + std::to_string(taken.rows) +
                ",\"route\":" + Quoted(RouteOf(batch.report, taken)) +
                ",\"reason\":" + (taken.reason.empty() ? "null" : Quoted(taken.reason)) + "}";
    }
    return text;
}

} // namespace

std::string DescribeBatch(const Batch &batch) {
    return "{\"rows\":" + std::to_string(batch.rows) + ",\"columns\":[" + DescribeColumns(batch) +
           "],\"device\":[" + std::to_string(batch.device->TypeNumber()) + "," +
           std::to_string(batch.device->Ordinal()) + "]}";
}

std::string DescribeReport(const Batch &batch) {
    const BatchReport &report = batch.report;
    return "{\"device\":" + Quoted(batch.device->Name()) +
           ",\"pinned_bytes\":" + std::to_string(batch.device->PinnedBytes()) +
           ",\"path\":" + Quoted(report.path) +
           ",\"bytes_read\":" + std::to_string(report.counters.bytes_read) +
           ",\"bytes_copied\":" + std::to_string(report.counters.bytes_copied) +
           ",\"bytes_decoded\":" + std::to_string(report.counters.bytes_decoded) +
           ",\"pruned_row_groups\":" + std::to_string(report.pruned_row_groups) +
           ",\"peak_waiting_bytes\":" + std::to_string(report.peak_waiting_bytes) +
           ",\"milliseconds\":" + Milliseconds(report.milliseconds) + ",\"routes\":[" +
           DescribeRoutes(batch) + "]}";
}

} // namespace rawduck::gpu
