// tensorboard.h -- event files for TensorBoard, made of the lines of metrics.jsonl.
//
// Each start writes a new file from metrics.jsonl, empties the last old one and removes the others. So no step appears
// twice after a resume, not even in tbparse, which reads all files. The new file begins with a START event at step 0,
// at which TensorBoard drops what it has read before.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

// The record of a line of metrics.jsonl: its numbers, or its text; "" if it has nothing to show. Error 65.
std::string event_record(const std::string& line);
// The records of a metrics.jsonl, without what resumes took back or this start scores again. 66.
std::string event_records(const std::string& path, int64_t eval_every);
// Writes a file of them; returns its path. 66, 74.
std::string write_event_file(const std::string& folder, int64_t eval_every);
std::vector<std::string> event_files(const std::string& folder);    // sorted paths of those that this program wrote
