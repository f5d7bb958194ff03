// tensorboard.h -- event files for TensorBoard, made of the lines of metrics.jsonl.
//
// A start writes its file anew from metrics.jsonl and empties the one before it. So no step appears twice after a
// resume, not even for tbparse, which drops nothing. TensorBoard reads START at step 0 in the new file, and drops what
// it has read before.
#pragma once
#include <string>
#include <vector>

// The record of a line of metrics.jsonl: its numbers, or its text; "" if it has nothing to show. Error 65.
std::string event_record(const std::string& line);
// Writes the folder's file from its metrics.jsonl, resumes honoured; returns its path. Errors 66, 74.
std::string write_event_file(const std::string& folder);
std::vector<std::string> event_files(const std::string& folder);    // their paths, sorted; also of other programs
