-- Save the line before, and open that of the i-th item.
saved := public.holdfast_save_1(line, was);
opened := public.holdfast_open_1(keys[i], mine, news);
line := opened.line;
was := opened.was;
news := opened.news;
