-- Save the line before, and open that of the i-th item.
saved := public.holdfast_save_line(line, was);
opened := public.holdfast_open_line(keys[i], engine_id, news);
line := opened.line;
was := opened.was;
news := opened.news;
