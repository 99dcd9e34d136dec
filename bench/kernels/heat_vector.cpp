// Heat on a plate with std::vector, the two fields swapped after each step.
#include <utility>
#include <vector>

#include "suite.h"

class Plate {
public:
    Plate(int rows, int columns) : rows_(rows), columns_(columns), now_(cells()), next_(cells())
    {
        fill_real(now_.data(), cells(), 1);
        next_ = now_;
    }
    KERNEL void step(double rate);
    const std::vector<double> &field() const { return now_; }

private:
    size_t cells() const { return (size_t)rows_ * columns_; }
    size_t at(int i, int j) const { return (size_t)i * columns_ + j; }

    int rows_, columns_;
    std::vector<double> now_, next_;
};

void Plate::step(double rate)
{
    for (int i = 1; i < rows_ - 1; i++)
        for (int j = 1; j < columns_ - 1; j++)
            next_[at(i, j)] = now_[at(i, j)] + rate * (now_[at(i - 1, j)] + now_[at(i + 1, j)] + now_[at(i, j - 1)] +
                                                       now_[at(i, j + 1)] - 4 * now_[at(i, j)]);
    std::swap(now_, next_);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 200);
    int rows = first_size(&run, 1303), columns = next_size(&run, 1511), steps = next_size(&run, 40);
    Plate plate(rows, columns);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int t = 0; t < steps; t++)
            plate.step(0.2);
        tock(&run);
        observe_real(&run, plate.field().data(), plate.field().size());
    }
    report_real("field", plate.field().data(), plate.field().size());
    return finish(&run);
}
