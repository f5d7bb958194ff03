// parent.h -- notices that the launcher is gone where a script between it and this process lives on.
#pragma once
#include <string>

void find_launcher(const std::string& name);    // name: World::launcher. Finds its process among the ancestors
bool launcher_is_gone();                        // false if none was found
