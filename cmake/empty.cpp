// The source that a target for precompiled headers must have.
int main() {}
