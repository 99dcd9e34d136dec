// Exceptions through frames with destructors, and virtual calls that go to one of two functions.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Guard {
    int &left;
    explicit Guard(int &l) : left(l) {}
    ~Guard() { left++; }
};

__attribute__((noinline)) static int deep(int n, int &left) {
    Guard guard(left);
    if (n == 0)
        throw std::runtime_error("bottom " + std::to_string(left));
    return deep(n - 1, left) + 1;
}

struct Shape {
    virtual int next(int x) = 0;
    virtual ~Shape() {}
};
struct Plus : Shape {
    int next(int x) override { return x + 1; }
};
struct Twice : Shape {
    int next(int x) override { return x * 2; }
};

int main() {
    int left = 0, caught = 0, state = 0;
    for (int i = 0; i < 200; i++) {
        try {
            deep(i % 13, left);
        } catch (const std::exception &e) {
            caught += e.what()[0];
        }
    }
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 100; i++)
        shapes.emplace_back(i % 3 ? static_cast<Shape *>(new Plus) : new Twice);
    for (int k = 0; k < 1000; k++)
        for (auto &shape : shapes)
            state = shape->next(state) % 1000;
    std::printf("%d %d %d\n", left, caught, state);
}
