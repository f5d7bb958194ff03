// main.cpp -- main of the tests that have none of their own.
#include "tests/test.h"

int main(int argc, char** argv) { return run_tests(argc, argv); }
